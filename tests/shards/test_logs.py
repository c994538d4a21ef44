"""Log lines."""

import json
import logging

import pytest

from shards.messages.logs import LogSettings, configure


@pytest.fixture(autouse=True)
def _former_logging() -> object:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_text_names_process_and_request(capsys: pytest.CaptureFixture[str]) -> None:
    configure("shard 3", LogSettings())
    logging.getLogger("shards.shard.server").info("%d done", 2, extra={"request_id": "r1"})
    line = capsys.readouterr().err.strip()
    assert line.endswith("info    <shard 3> [r1] 2 done")


def test_json_has_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("gateway 0", LogSettings(format="json"))
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("gateway.app").exception("failed")
    entry = json.loads(capsys.readouterr().err)
    assert (entry["process"], entry["level"], entry["message"]) == ("gateway 0", "error", "failed")
    assert "ValueError: why" in entry["traceback"]


def test_libraries_are_quiet_below_warning(capsys: pytest.CaptureFixture[str]) -> None:
    configure("gateway 0", LogSettings())
    logging.getLogger("some.library").info("chatter")
    assert capsys.readouterr().err == ""
