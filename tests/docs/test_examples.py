"""The documentation's examples run as written, against services that are shared."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from gateway.cli.flags_table import with_tables
from tests.front import OUTSIDE
from tests.serving import Service

ROOT = Path(__file__).parent.parent.parent
FRONT_DOOR = ROOT / "docs" / "front-door.md"
_PYTHON = re.compile(r"```python\n(# example: (\w+)\n.*?)```", re.DOTALL)
_CURL = re.compile(r"^curl .*?^\}'$", re.DOTALL | re.MULTILINE)


def _examples(path: Path) -> dict[str, str]:
    return {name: code for code, name in _PYTHON.findall(path.read_text("utf-8"))}


CLIENT_EXAMPLES = _examples(ROOT / "docs" / "client.md")
FRONT_DOOR_EXAMPLES = _examples(FRONT_DOOR)
FRONT_DOOR_CURLS = {
    f"{path.name}-{line}": command
    for path in (FRONT_DOOR, ROOT / "README.md")
    for line, command in enumerate(_CURL.findall(path.read_text("utf-8")))
    if "curl -N" in command
}


def _run(command: list[str]) -> str:
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return run.stdout


def _at(text: str, service: Service) -> str:
    assert "http://localhost:8100" in text
    return text.replace("http://localhost:8100", service.url)


@pytest.mark.parametrize("name", CLIENT_EXAMPLES)
def test_client_examples(name: str, service: Service) -> None:
    code = _at(CLIENT_EXAMPLES[name], service)
    assert "assistant" in _run([sys.executable, "-c", code])


@pytest.mark.parametrize("name", FRONT_DOOR_EXAMPLES)
def test_front_door_examples(name: str, front: Service) -> None:
    shown = _run([sys.executable, "-c", _at(FRONT_DOOR_EXAMPLES[name], front)])
    assert shown.strip()
    if OUTSIDE is None:
        assert "2 + 2 = 4" in shown


@pytest.mark.parametrize("name", FRONT_DOOR_CURLS)
def test_front_door_curl_lines(name: str, front: Service) -> None:
    shown = _run(["sh", "-c", _at(FRONT_DOOR_CURLS[name], front)])
    assert shown.startswith('data: {"id":"chatcmpl-')
    assert shown.endswith("data: [DONE]\n\n")


def test_the_examples_are_found() -> None:
    assert {"blocking", "asyncio"} == set(CLIENT_EXAMPLES)
    assert FRONT_DOOR_EXAMPLES
    assert {name.rpartition("-")[0] for name in FRONT_DOOR_CURLS} == {"front-door.md", "README.md"}


def test_the_readme_derender_line(service: Service) -> None:
    (command,) = (
        each
        for each in _CURL.findall((ROOT / "README.md").read_text("utf-8"))
        if "/derender" in each
    )
    assert '"object":"chat.completion"' in _run(["sh", "-c", _at(command, service)])


def test_the_flag_tables_say_what_the_settings_say() -> None:
    text = (ROOT / "docs/operations.md").read_text("utf-8")
    assert text == with_tables(text), "run `make docs`"


def test_every_metric_is_documented(front: Service) -> None:
    text = (ROOT / "docs/operations.md").read_text("utf-8")
    shown = httpx.get(f"{front.url}/metrics").text
    names = set(re.findall(r"^# TYPE derender_(\w+)", shown, re.MULTILINE))
    missing = [
        name
        for name in names
        if not name.endswith("_created") and not re.search(rf"\b{name}\b", text)
    ]
    assert not missing
