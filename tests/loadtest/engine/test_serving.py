"""How the scripted engine serves: refusals, ends, pace, what it counts and keeps, its program."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from typing import Any

import httpx
import pytest
import uvicorn

from loadtest.engine.app import listen
from loadtest.engine.settings import ScriptedSettings
from loadtest.engine.transport import TransportProtocol
from tests.loadtest.engine.engine_client import (
    DEADLINE_S,
    GENERATE,
    body,
    client_of,
    decode,
    generate,
    open_call,
    outcomes,
    run_engine,
    serve_engine,
    stream,
    wait_for_outcome,
    wait_for_stats,
)


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (b"[1,", None),
        (b"[]", None),
        (json.dumps({"sampling_params": {}}).encode(), "body.token_ids"),
        (json.dumps({"token_ids": [1]}).encode(), "body.sampling_params"),
        (json.dumps(body(sampling_params={"n": "two"})).encode(), "body.sampling_params.n"),
        (json.dumps({**body(), "token_ids": []}).encode(), "token_ids"),
        (json.dumps({**body(), "token_ids": [-1]}).encode(), "token_ids"),
        (json.dumps({**body(), "token_ids": [1] * 32768}).encode(), "token_ids"),
        (json.dumps({**body(), "token_ids": [99999]}).encode(), None),
        (json.dumps(body(sampling_params={"n": 0})).encode(), "n"),
        (json.dumps(body(sampling_params={"max_tokens": 0})).encode(), "max_tokens"),
        (json.dumps(body(sampling_params={"min_tokens": -1})).encode(), "min_tokens"),
        (
            json.dumps(body(sampling_params={"min_tokens": 3, "max_tokens": 2})).encode(),
            "min_tokens",
        ),
        (json.dumps(body(sampling_params={"logprobs": 21})).encode(), "logprobs"),
        (json.dumps(body(sampling_params={"logprobs": -1})).encode(), "logprobs"),
    ],
)
def test_bad_bodies_get_openai_errors(
    client: httpx.Client, content: bytes, param: str | None
) -> None:
    response = client.post(GENERATE, content=content)
    error = response.json()["error"]
    assert response.status_code == 400
    assert list(error) == ["message", "type", "param", "code"]
    assert (error["param"], error["code"]) == (param, 400)
    assert error["message"]


def test_error_in_a_stream_is_an_event(client: httpx.Client) -> None:
    (event,) = stream(client, {**body(), "token_ids": [99999]})
    assert event["error"]["message"] == "Token id 99999 is out of vocabulary"


def test_unknown_model_path_and_method() -> None:
    with run_engine(ScriptedSettings(served_model_name="demo")) as client:
        unknown = client.post(GENERATE, json=body(model="nope"))
        assert unknown.status_code == 404
        assert unknown.json()["error"]["param"] == "model"
        assert generate(client, body(model="demo"))["model"] == "demo"
        assert generate(client, body())["model"] == "demo"
        assert client.get(GENERATE).status_code == 405
        assert client.get("/nothing").status_code == 404
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize("streamed", [True, False])
def test_client_that_goes_away_aborts_its_generation(streamed: bool) -> None:
    settings = ScriptedSettings(tokens_per_second=20.0, script="long")
    with run_engine(settings) as client:
        request = body(stream=streamed)
        with (
            nullcontext() if streamed else pytest.raises(httpx.ReadTimeout),
            httpx.stream(
                "POST", f"{client.base_url}{GENERATE}", json=request, timeout=0.3
            ) as response,
        ):
            assert next(response.iter_lines()).startswith("data: ")
        wait_for_stats(client, started=1, finished=0, aborted=1, in_flight=0)


def test_every_end_is_counted_once(client: httpx.Client) -> None:
    before = client.get("/stats").json()
    generate(client, body())
    events = stream(client, body())
    client.post(GENERATE, content=b"{")
    # A body, the events, and `[DONE]`.
    wait_for_stats(client, parts=before["parts"] + 1 + len(events) + 1)
    wait_for_stats(client, started=before["started"] + 2, finished=before["finished"] + 2)
    wait_for_stats(client, aborted=before["aborted"], in_flight=0)


def test_pace_spreads_the_tokens_and_streams_run_side_by_side() -> None:
    async def run(base_url: str) -> float:
        start = time.monotonic()
        async with httpx.AsyncClient(base_url=base_url, timeout=DEADLINE_S) as client:
            request = body(sampling_params={"max_tokens": 10})
            calls = (client.post(GENERATE, json={**request, "stream": True}) for _ in range(8))
            responses = await asyncio.gather(*calls)
        assert all(response.text.endswith("data: [DONE]\n\n") for response in responses)
        return time.monotonic() - start

    with run_engine(ScriptedSettings(tokens_per_second=20.0)) as client:
        elapsed = asyncio.run(run(str(client.base_url)))
    assert 0.5 <= elapsed < 4.0


@pytest.mark.parametrize(
    "wrong", [{"script": "none"}, {"tokens_per_chunk": 0}, {"tokens_per_second": -1.0}]
)
def test_settings_refuse_what_means_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ScriptedSettings(**wrong)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_program_serves_without_vllm_and_ends_cleanly(signum: signal.Signals) -> None:
    code = (
        "import sys, atexit, loadtest.engine.__main__ as e\n"
        "atexit.register(lambda: print('heavy', {'vllm', 'transformers'} & set(sys.modules)))\n"
        "sys.exit(e.main(['--port', '0', '--script', 'unicode']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("engine: serving on http://127.0.0.1:")
        url = line.split()[-1]
        answer = httpx.post(f"{url}{GENERATE}", json=body(), timeout=DEADLINE_S).json()
        assert "今天天气很好" in decode(answer["choices"][0]["token_ids"])
        os.kill(process.pid, signum)
        rest, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, rest) == (0, "heavy set()\n")


def test_taken_port_is_one_clear_line() -> None:
    with listen("127.0.0.1", 0) as taken:
        command = [sys.executable, "-m", "loadtest.engine", "--port", str(taken.getsockname()[1])]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("engine: cannot start: ")
    assert result.stderr.count("\n") == 1


def test_requests_are_listed_as_they_came(client: httpx.Client) -> None:
    client.delete("/requests")
    request = body(sampling_params={"max_tokens": 1}, request_id="r1", priority=3)
    client.post(GENERATE, json=request, headers={"X-Data-Parallel-Rank": "1"})
    client.post(GENERATE, content=b"[1,")
    good, bad = client.get("/requests").json()
    length = len(request.pop("token_ids"))
    assert good["body"] == {**request, "prompt_tokens": length}
    assert good["headers"]["x-data-parallel-rank"] == "1"
    assert (good["outcome"], bad["outcome"], bad["body"]) == ("finished", "failed", None)
    assert client.delete("/requests").status_code == 200
    assert client.get("/requests").json() == []


def test_only_the_last_requests_are_kept(client: httpx.Client) -> None:
    for number in range(103):
        generate(client, body(request_id=str(number), sampling_params={"max_tokens": 1}))
    listed = [call["body"]["request_id"] for call in client.get("/requests").json()]
    assert listed == [str(number) for number in range(3, 103)]


@pytest.mark.parametrize("streamed", [True, False])
def test_abort_is_noticed_while_the_engine_waits_for_a_slow_pace(streamed: bool) -> None:
    settings = ScriptedSettings(tokens_per_second=0.01)
    with serve_engine(settings) as (_, port), client_of(port) as client:
        call = open_call(port, body(stream=streamed))
        wait_for_stats(client, in_flight=1)
        assert outcomes(client) == ["running"]
        call.close()
        wait_for_outcome(client, "aborted")
        wait_for_stats(client, started=1, aborted=1, in_flight=0)


def test_abort_is_noticed_while_the_client_does_not_read() -> None:
    params = {"logprobs": 20, "ignore_eos": True}
    request = body(stream=True, sampling_params=params)
    with serve_engine(ScriptedSettings()) as (server, port), client_of(port) as client:
        call = open_call(port, request, receive_buffer=4096)
        until_blocked(server)
        assert outcomes(client) == ["running"]
        call.close()
        wait_for_outcome(client, "aborted")
        wait_for_stats(client, started=1, aborted=1, in_flight=0)


def until_blocked(server: uvicorn.Server) -> None:
    """Wait until a connection takes no more bytes."""
    deadline = time.monotonic() + DEADLINE_S
    while not any(
        isinstance(protocol, TransportProtocol) and protocol.flow.write_paused
        for protocol in list(server.server_state.connections)
    ):
        assert time.monotonic() < deadline
        time.sleep(0.02)
