"""What the scripted engine says, member for member as a real one."""

import json
from typing import Any

import httpx
import pytest

from loadtest.engine.script import HEAD_TOKENS, PLAIN, SUM
from loadtest.engine.settings import ScriptedSettings
from tests.loadtest.engine.engine_client import (
    GENERATE,
    body,
    decode,
    encode,
    generate,
    run_engine,
    stream,
    tokens_of,
)
from tests.recordings import all_recordings


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
