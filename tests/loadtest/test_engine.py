import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import httpx
import pytest
import uvicorn

from loadtest.engine.app import listen
from loadtest.engine.script import HEAD_TOKENS, PLAIN, SUM
from loadtest.engine.settings import ScriptedSettings
from loadtest.engine.transport import TransportProtocol
from tests.loadtest.engine_client import (
    DEADLINE_S,
    GENERATE,
    body,
    client_of,
    decode,
    encode,
    generate,
    open_call,
    outcomes,
    run_engine,
    serve_engine,
    stream,
    tokens_of,
    wait_for_outcome,
    wait_for_stats,
)
from tests.recordings import all_recordings


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with run_engine(ScriptedSettings()) as client:
        yield client


def recording(name: str) -> Any:
    return next(record for record in all_recordings() if record["name"] == name)


def shape(value: Any) -> Any:
    """The member names of a value, all the way down, in the order of the wire."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return [shape(member) for member in value[:1]]
    return None if value is None else type(value).__name__


def ordered(value: Any) -> str:
    return json.dumps(shape(value))


def as_recorded(record: Any, **members: Any) -> dict[str, Any]:
    """Our request with the sampling parameters of a recorded one."""
    sampling = record["render"]["response"]["sampling_params"]
    return body("Hello", model="m", request_id="r1", sampling_params=sampling, **members)


@pytest.mark.parametrize("name", ["dice_mixed__n2_token_ids", "dice_mixed__logprobs5"])
def test_response_has_the_recorded_shape(client: httpx.Client, name: str) -> None:
    record = recording(name)
    recorded = record["generate"]
    ours = generate(client, as_recorded(record, **recorded["request"]))
    assert ordered(ours) == ordered(recorded["response"])
    assert len(ours["choices"]) == len(recorded["response"]["choices"])


@pytest.mark.parametrize(
    "name",
    [
        "dice_mixed__n2_token_ids",
        "dice_mixed__logprobs5",
        "dice_mixed__n2_continuous_usage",
    ],
)
def test_stream_has_the_recorded_shape(client: httpx.Client, name: str) -> None:
    record = recording(name)
    recorded = record["generate_stream"]
    ours = stream(client, as_recorded(record, **recorded["request"]))
    theirs = recorded["chunks"][:-1]
    for position in (0, 1, -2, -1):
        assert ordered(ours[position]) == ordered(theirs[position]), position


def test_answer_follows_from_the_prompt(client: httpx.Client) -> None:
    plain = generate(client, body("Hello"))
    total = generate(client, body("What is 2+2?"))
    assert decode(plain["choices"][0]["token_ids"]) == f"{PLAIN}<|im_end|>"
    assert decode(total["choices"][0]["token_ids"]) == f"{SUM}<|im_end|>"
    assert generate(client, body("Hello"))["choices"] == plain["choices"]
    assert plain["choices"][0]["finish_reason"] == "stop"
    assert plain["choices"][0]["stop_reason"] is None


def test_tools_in_the_prompt_give_a_call_of_the_first_one(client: httpx.Client) -> None:
    schema = {
        "properties": {"unit": {"enum": ["c", "f"]}, "days": {"type": "integer"}, "x": {}},
        "required": ["unit", "days"],
    }
    listed = [{"function": {"name": name, "parameters": schema}} for name in ("forecast", "b")]
    lines = "\n".join(json.dumps(tool) for tool in listed)
    answer = generate(client, body(f"<tools>\n{lines}\n</tools>"))["choices"][0]["token_ids"]
    call = '{"name": "forecast", "arguments": {"unit": "c", "days": 3}}'
    assert decode(answer).endswith(f"<tool_call>\n{call}\n</tool_call><|im_end|>")


@pytest.mark.parametrize("listed", ["nonsense", "[]", '{"function": 1}'])
def test_unreadable_tools_give_the_stock_call(client: httpx.Client, listed: str) -> None:
    answer = generate(client, body(f"<tools>\n{listed}\n</tools>"))["choices"][0]["token_ids"]
    assert '{"name": "get_weather", "arguments": {"city": "Paris"}}' in decode(answer)


@pytest.mark.parametrize("closed", ["", "<think>\n\n</think>\n\n"])
@pytest.mark.parametrize("padding", ["", "lorem ipsum " * (HEAD_TOKENS // 4)])
def test_the_result_of_a_tool_is_answered_with_text(
    client: httpx.Client, padding: str, closed: str
) -> None:
    tools = '<tools>\n{"function": {"name": "f"}}\n</tools>'
    result = f"<tool_response>\n{padding}18 degrees\n</tool_response><|im_end|>\n"
    opened = f"<|im_start|>assistant\n{closed}"
    answered = generate(client, body(f"{tools}{result}{opened}"))["choices"][0]["token_ids"]
    assert decode(answered).endswith(PLAIN.rpartition("</think>\n\n")[2] + "<|im_end|>")
    asked_again = f"{tools}{result}<|im_start|>user\nAnd now?<|im_end|>\n{opened}"
    again = generate(client, body(asked_again))["choices"][0]["token_ids"]
    assert decode(again).endswith("</tool_call><|im_end|>")


def test_reasoning_closed_in_the_prompt_is_not_opened_again(client: httpx.Client) -> None:
    answer = generate(client, body("Hello<think>\n\n</think>\n\n"))["choices"][0]["token_ids"]
    assert decode(answer).startswith("Hello! The answer is")


def test_stream_joins_to_the_whole_answer(client: httpx.Client) -> None:
    request = body(sampling_params={"n": 3})
    whole = generate(client, request)
    events = stream(client, request)
    for choice in whole["choices"]:
        assert tokens_of(events, choice["index"]) == choice["token_ids"]
    texts = {tuple(choice["token_ids"]) for choice in whole["choices"]}
    assert len(texts) == 3


def test_choices_interleave_one_to_an_event(client: httpx.Client) -> None:
    events = stream(client, body(sampling_params={"n": 2, "max_tokens": 5}))
    assert [len(event["choices"]) for event in events] == [1] * 10
    assert [event["choices"][0]["index"] for event in events] == [0, 1] * 5


def test_chunks_hold_one_token_then_the_chosen_number() -> None:
    with run_engine(ScriptedSettings(tokens_per_chunk=4)) as client:
        events = stream(client, body(sampling_params={"max_tokens": 11}))
    assert [len(event["choices"][0]["token_ids"]) for event in events] == [1, 4, 4, 2]


def test_max_tokens_ends_with_length(client: httpx.Client) -> None:
    answer = generate(client, body(sampling_params={"max_tokens": 3}))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(answer["choices"][0]["token_ids"]) == 3
    assert answer["usage"]["completion_tokens"] == 3
    finishes = [
        event["choices"][0]["finish_reason"]
        for event in stream(client, body(sampling_params={"max_tokens": 3}))
    ]
    assert finishes == [None, None, "length"]


def test_ignore_eos_goes_on_to_max_tokens(client: httpx.Client) -> None:
    params = {"max_tokens": 500, "ignore_eos": True}
    choice = generate(client, body(sampling_params=params))["choices"][0]
    assert (len(choice["token_ids"]), choice["finish_reason"]) == (500, "length")


def test_stop_token_ends_and_is_named(client: httpx.Client) -> None:
    stop = encode("</think>")[0]
    choice = generate(client, body(sampling_params={"stop_token_ids": [stop]}))["choices"][0]
    assert (choice["token_ids"][-1], choice["stop_reason"]) == (stop, stop)
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (1, 1), (2, 2), (5, 5), (20, 20)])
def test_logprobs_start_with_the_sampled_token(
    client: httpx.Client, asked: int, given: int
) -> None:
    choice = generate(client, body(sampling_params={"logprobs": asked}))["choices"][0]
    positions = choice["logprobs"]["content"]
    assert [position["token_id"] for position in positions] == choice["token_ids"]
    for position in positions:
        top = position["top_logprobs"]
        assert top[0] == {key: position[key] for key in ("token_id", "logprob", "rank")}
        assert len({entry["token_id"] for entry in top}) == given == len(top)
        assert len({entry["rank"] for entry in top}) == given
        by_rank = sorted(top, key=lambda entry: int(entry["rank"]))
        assert by_rank == sorted(top, key=lambda entry: -float(entry["logprob"]))


def test_prompt_logprobs_are_by_token_and_not_streamed(client: httpx.Client) -> None:
    request = body("Hello there", sampling_params={"prompt_logprobs": 2})
    first, *others = generate(client, request)["prompt_logprobs"]
    assert first is None
    for token_id, candidates in zip(request["token_ids"][1:], others, strict=True):
        assert len(candidates) == 2
        own = candidates[str(token_id)]
        assert set(own) == {"logprob", "rank", "decoded_token"}
        assert {candidate["rank"] for candidate in candidates.values()} == {1, 2}
    assert client.post(GENERATE, json={**request, "stream": True}).status_code == 400


def test_usage_comes_only_when_asked_for(client: httpx.Client) -> None:
    params = {"n": 2, "max_tokens": 4}
    assert all(event["usage"] is None for event in stream(client, body(sampling_params=params)))
    options = {"include_usage": True}
    *events, last = stream(client, body(sampling_params=params, stream_options=options))
    assert all(event["usage"] is None for event in events)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 1, "total_tokens": 9, "completion_tokens": 8}


def test_continuous_usage_counts_each_choice(client: httpx.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    params = {"n": 2, "max_tokens": 3}
    *events, _ = stream(client, body(sampling_params=params, stream_options=options))
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 1, 2, 2, 3, 3]


def test_prompt_is_in_the_first_event_only(client: httpx.Client) -> None:
    request = body(return_token_ids=True, sampling_params={"n": 2, "max_tokens": 2})
    first, *others = stream(client, request)
    assert first["prompt_token_ids"] == request["token_ids"]
    assert all("prompt_token_ids" not in event for event in others)


def test_request_id_is_prefixed_and_the_header_wins(client: httpx.Client) -> None:
    request = body(request_id="r1")
    assert generate(client, request)["request_id"] == "generate-tokens-r1"
    response = client.post(GENERATE, json=request, headers={"X-Request-Id": "h1"})
    assert response.json()["request_id"] == "generate-tokens-h1"
    drawn = {generate(client, body())["request_id"] for _ in range(2)}
    assert len(drawn) == 2


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


def test_min_tokens_puts_the_end_off(client: httpx.Client) -> None:
    script = generate(client, body())["choices"][0]["token_ids"]
    params = {"min_tokens": len(script) + 1}
    longer = generate(client, body(sampling_params=params))["choices"][0]
    assert longer["token_ids"] == script * 2
    assert longer["finish_reason"] == "stop"
    exact = generate(client, body(sampling_params={"min_tokens": len(script)}))["choices"][0]
    assert exact["token_ids"] == script


def test_min_tokens_passes_over_early_stop_tokens(client: httpx.Client) -> None:
    script = generate(client, body())["choices"][0]["token_ids"]
    params = {"stop_token_ids": [script[0]], "min_tokens": 2}
    choice = generate(client, body(sampling_params=params))["choices"][0]
    assert choice["token_ids"][: len(script)] == script[: len(choice["token_ids"])]
    assert len(choice["token_ids"]) >= 2
    params = {"stop_token_ids": [script[1]], "min_tokens": 2}
    choice = generate(client, body(sampling_params=params))["choices"][0]
    assert (choice["token_ids"], choice["stop_reason"]) == (script[:2], script[1])


def test_tokens_only_engine_takes_no_stop_strings() -> None:
    with run_engine(ScriptedSettings(tokens_only=True)) as client:
        for stop in ("x", ["x"]):
            response = client.post(GENERATE, json=body(sampling_params={"stop": stop}))
            assert response.status_code == 400
            assert response.json()["error"]["param"] == "stop"
        params = {"stop": [], "max_tokens": 3, "min_tokens": 1}
        assert len(generate(client, body(sampling_params=params))["choices"][0]["token_ids"]) == 3


def test_tokens_only_engine_shows_that_max_tokens_is_lost() -> None:
    with run_engine(ScriptedSettings(tokens_only=True)) as client:
        choice = generate(client, body())["choices"][0]
        ended = generate(client, body(sampling_params={"max_tokens": 1000}))["choices"][0]
    assert (len(choice["token_ids"]), choice["finish_reason"]) == (32767, "length")
    assert decode(ended["token_ids"]) == f"{PLAIN}<|im_end|>"


@pytest.mark.parametrize("params", [{}, {"logprobs": 1}])
def test_every_event_has_the_members_of_the_first(
    client: httpx.Client, params: dict[str, Any]
) -> None:
    request = body(sampling_params={"n": 2, "max_tokens": 4, **params})
    events = stream(client, request)
    for event in events:
        assert list(event) == list(events[0])
        assert list(event["choices"][0]) == list(events[0]["choices"][0])
        assert event["request_id"] == events[0]["request_id"]


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
