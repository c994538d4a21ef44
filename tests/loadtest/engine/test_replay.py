import json
import lzma
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtest.engine.replay import recorded_name
from loadtest.engine.settings import ScriptedSettings
from tests.loadtest.engine.engine_client import GENERATE, outcomes, run_engine
from tests.recordings import as_list, prompts, served
from tests.serving import ROOT

RECORDINGS = ROOT / "tests" / "fixtures" / "real_engine.jsonl.xz"
USAGE = {"include_usage": True}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with run_engine(ScriptedSettings(recordings=RECORDINGS)) as client:
        yield client


def recording(name: str) -> Any:
    return next(record for record in served() if record["name"] == name)


def request_id(record: Any, index: int) -> str:
    """The ID that a front door gives to prompt `index` of a recorded request."""
    if record["endpoint"] == "chat":
        return f"chatcmpl-rec-{record['name']}"
    several = len(prompts(record)) > 1
    return f"cmpl-rec-{record['name']}{f'-{index}' if several else ''}"


def ask(client: httpx.Client, name: str, prompt: list[int], /, **members: Any) -> httpx.Response:
    request = {"token_ids": prompt, "sampling_params": {}, **members}
    return client.post(GENERATE, json=request, headers={"x-request-id": name})


def payloads(response: httpx.Response) -> list[Any]:
    """The events of a stream as they are recorded."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


@pytest.mark.parametrize("record", served(), ids=lambda record: record["name"])
def test_recordings_come_back_as_they_are(client: httpx.Client, record: Any) -> None:
    wholes, streams = as_list(record["generate"]), as_list(record["generate_stream"])
    for index, prompt in enumerate(prompts(record)):
        name = request_id(record, index)
        whole = ask(client, name, prompt)
        assert whole.status_code == wholes[index]["status"]
        assert whole.json() == wholes[index]["response"]
        events = payloads(ask(client, name, prompt, stream=True, stream_options=USAGE))
        assert events == streams[index]["chunks"]


def test_usage_is_left_out_unless_it_is_asked_for(client: httpx.Client) -> None:
    record = recording("dice_mixed__n2_token_ids")
    chunks = record["generate_stream"]["chunks"]
    assert chunks[-2]["choices"] == []
    events = payloads(ask(client, request_id(record, 0), prompts(record)[0], stream=True))
    assert events == [*chunks[:-2], "[DONE]"]


def test_another_prompt_is_refused_where_it_parts(client: httpx.Client) -> None:
    record = recording("dice_mixed__n2_token_ids")
    prompt = prompts(record)[0]
    name = request_id(record, 0)
    wrong = {"3": [*prompt[:3], prompt[3] + 1, *prompt[4:]], str(len(prompt)): [*prompt, 1]}
    wrong[str(len(prompt) - 1)] = prompt[:-1]
    for position, asked in wrong.items():
        for streamed in (True, False):
            response = ask(client, name, asked, stream=streamed)
            error = response.json()["error"]
            assert (response.status_code, error["code"], error["param"]) == (400, 400, "token_ids")
            assert error["message"].endswith(f"from position {position} on")
    assert outcomes(client)[-1] == "failed"


@pytest.mark.parametrize("name", ["nothing", "dice_mixed__n2_token_ids-1", "nothing-0"])
def test_unknown_recordings_are_not_found(client: httpx.Client, name: str) -> None:
    response = ask(client, f"rec-{name}", [1])
    assert response.status_code == 404
    assert f"`{name}`" in response.json()["error"]["message"]


def test_the_body_may_name_the_recording(client: httpx.Client) -> None:
    record = recording("dice_mixed__logprobs5")
    request = {"token_ids": prompts(record)[0], "sampling_params": {}, "request_id": "rec-nothing"}
    assert client.post(GENERATE, json=request).status_code == 404
    request["request_id"] = f"rec-{record['name']}"
    assert client.post(GENERATE, json=request).json() == record["generate"]["response"]


def test_other_requests_get_the_script(client: httpx.Client) -> None:
    answer = ask(client, "chatcmpl-1", [1]).json()
    assert answer["request_id"] == "generate-tokens-chatcmpl-1"


def test_tokens_only_holds_for_recordings_too() -> None:
    record = recording("dice_mixed__logprobs5")
    with run_engine(ScriptedSettings(recordings=RECORDINGS, tokens_only=True)) as client:
        prompt = prompts(record)[0]
        response = ask(client, request_id(record, 0), prompt, sampling_params={"stop": "x"})
        assert response.status_code == 400
        assert ask(client, request_id(record, 0), prompt).status_code == 200


def test_plain_files_are_read_and_incomplete_recordings_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "recordings.jsonl"
    with lzma.open(RECORDINGS, "rb") as lines:
        kept = list(lines)
    file.write_bytes(b"".join(kept))
    record = recording("dice_mixed__logprobs5")
    refused = next(json.loads(line)["name"] for line in kept if b'"generate":' not in line)
    with run_engine(ScriptedSettings(recordings=file)) as client:
        answer = ask(client, request_id(record, 0), prompts(record)[0])
        assert answer.json() == record["generate"]["response"]
        assert ask(client, f"rec-{refused}", [1]).status_code == 404


def test_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest.engine", "--port", "0", "--recordings"]
    result = subprocess.run(
        [*command, str(tmp_path / "none")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr.startswith("engine: cannot start: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("rec-a", "a"),
        ("chatcmpl-rec-a-1", "a-1"),
        ("cmpl-rec-a", "a"),
        ("cmpl-a", None),
        ("x-rec-a", None),
        ("rec-", None),
        (None, None),
    ],
)
def test_request_ids_name_recordings(given: str | None, name: str | None) -> None:
    assert recorded_name(given) == name
