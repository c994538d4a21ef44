"""Every recorded request gets the recorded answer over HTTP, from a replaying engine."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests import models, recordings
from tests.e2e.front_calls import events
from tests.front import RECORDINGS as FILE
from tests.front import EngineProcess
from tests.recordings import differences
from tests.serving import PARSERS, Service

Json = Any

RECORDINGS = {
    recording["name"]: recording
    for recording in recordings.served()
    if recording["server"].get("tool_call_parser") == "hermes"
    and recording["server"].get("reasoning_parser") == "qwen3"
    # Made with a patched parser; see `tests.core.test_coupled`.
    and recording["kind"] != "json_tools"
}
PATHS = {"chat": "/v1/chat/completions", "completion": "/v1/completions"}

# The recordings are of vLLM 0.32; 0.33 refuses this in a stream.
REFUSED_STREAM = "plain_hello__prompt_logprobs"
DIFFERENT = ("id", "created", "system_fingerprint", "request_id")


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    log = tmp_path_factory.mktemp("recorded") / "log"
    flags = ("--served-model-name", "m", "--max-model-len", "8192", "--shards", "1", *PARSERS)
    with EngineProcess("--tokens-only", "--recordings", str(FILE)) as engine:
        model = str(models.folder("qwen"))
        with Service(log, *flags, "--engine-url", engine.url, model=model) as running:
            url = running.wait_until_serving()
            with httpx.Client(base_url=url, timeout=30) as opened:
                yield opened


def ask(http: httpx.Client, name: str, **members: Any) -> httpx.Response:
    recording = RECORDINGS[name]
    request = recording["request"] | members
    headers = {"x-request-id": f"rec-{name}"}
    return http.post(PATHS[recording["endpoint"]], json=request, headers=headers)


def comparable(answer: Json) -> Json:
    """An answer without what differs each time, and without null members."""
    if isinstance(answer, list):
        return [comparable(part) for part in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        key: comparable(value)
        for key, value in answer.items()
        if key not in DIFFERENT and value is not None
    }


def by_choice(found: list[Json]) -> dict[int, list[Json]]:
    """The events of each choice in order, and under -1 those of none: how choices mix is chance."""
    sorted_out = defaultdict(list)
    for event in comparable(found):
        named = event != "[DONE]" and event["choices"]
        sorted_out[event["choices"][0]["index"] if named else -1].append(event)
    return dict(sorted_out)


def test_the_recordings_are_there() -> None:
    assert len(RECORDINGS) == 123
    assert REFUSED_STREAM in RECORDINGS


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_whole_answer_is_the_recorded_one(http: httpx.Client, name: str) -> None:
    answer = ask(http, name)
    assert answer.status_code == 200, answer.text
    recorded = RECORDINGS[name]["coupled"]["response"]
    assert differences(comparable(answer.json()), comparable(recorded)) == []


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_stream_is_the_recorded_one_event_by_event(http: httpx.Client, name: str) -> None:
    recorded = RECORDINGS[name]["coupled_stream"]
    answer = ask(http, name, **recorded["request"])
    if name == REFUSED_STREAM:
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "prompt_logprobs")
        return
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert differences(by_choice(events(answer.text)), by_choice(recorded["chunks"])) == []
