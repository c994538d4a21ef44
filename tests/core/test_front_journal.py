"""A stream opened anew from its journal goes on as if nothing had happened, byte for byte.

Wherever shards are lost, and however the engine's events came in frames.
"""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.front.journal import read
from core.protocol.errors import BadRequest
from core.protocol.plan import EngineEvent, Plan
from tests.core.calling import QWEN, QWEN_PLAIN, SPM_PLAIN, Json, Setup, encode
from tests.core.front import DONE, Door, event, plan_of
from tests.core.front_generation import Case, cases, engine_events
from tests.core.test_front_differential import DEEPSEEK_V3, more

by_setup = pytest.mark.parametrize("setup", (QWEN, QWEN_PLAIN, DEEPSEEK_V3, SPM_PLAIN), ids=str)
MESSAGES = [{"role": "user", "content": "Hi"}]


@st.composite
def served(draw: st.DrawFn, setup: Setup) -> tuple[Case, Plan, list[EngineEvent]]:
    """A request for which the engine streams, and what it says."""

    def streams(case: Case) -> bool:
        return bool(case.body.get("stream") or case.body.get("stop"))

    stream, calls = draw(st.booleans()), bool(setup.tool_parser) and draw(st.booleans())
    case = draw(cases(setup, stream=stream, calls=calls).filter(streams))
    try:
        plan = plan_of(setup, case.endpoint, case.body)
    except BadRequest:
        assume(False)
        raise
    # With logprobs of the prompt the engine does not stream.
    assume(plan.engine_streams)
    given_events = engine_events(setup, case, plan, tokenizer=draw(st.booleans()))
    return case, plan, [adorned(each) for each in given_events]


def adorned(each: EngineEvent) -> EngineEvent:
    """An event with the members engines send that share caches, or speculate."""
    if not each.data:
        return each
    payload = json.loads(each.data)
    if payload["choices"]:
        payload["kv_transfer_params"] = {"block": [each.prompt, None]}
    else:
        payload["usage"]["prompt_tokens_details"] = {"cached_tokens": each.prompt + 1}
        payload["metrics"] = {"speculative_decoding": {"accepted": each.prompt}}
    return event(payload, each.prompt)


@by_setup
@more
@given(data=st.data())
def test_lost_shards_and_frames_change_nothing(setup: Setup, data: st.DataObject) -> None:
    _, plan, given_events = data.draw(served(setup))
    undisturbed = Door(setup, plan).take_each(given_events)
    assert undisturbed.ended
    assert undisturbed.advances[-1].fault is None
    door, left = Door(setup, plan), list(given_events)
    while left and not door.ended:
        if data.draw(st.booleans()):
            door.move()
        size = data.draw(st.sampled_from((1, 1, 2, 3, 7, 30)))
        door.take(left[:size])
        left = left[size:]
    assert door.ended
    assert door.data == undisturbed.data
    assert door.journal_entries == undisturbed.journal_entries
    assert sum(advance.tokens for advance in door.advances) == sum(
        advance.tokens for advance in undisturbed.advances
    )


def stream_of(*parts: Json) -> list[Json]:
    usage = {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 7}}
    return [*({"choices": [part]} for part in parts), {"choices": [], "usage": usage}, DONE]


def part(text: str, finish: str | None = None, index: int = 0) -> Json:
    return {"index": index, "token_ids": encode("qwen", text), "finish_reason": finish}


def test_the_engine_s_usage_survives() -> None:
    body = {"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}
    plan = plan_of(QWEN, "chat", body)
    *given_events, done = (event(payload) for payload in stream_of(part("One", "length")))
    door = Door(QWEN, plan).take_each(given_events)
    door.move()
    door.take([done])
    assert b'"prompt_tokens_details":{"cached_tokens": 7}' in door.data


def test_nothing_is_sent_twice_where_the_engine_has_not_begun() -> None:
    body = {"prompt": "a", "stream": True, "return_token_ids": True}
    plan = plan_of(QWEN_PLAIN, "completion", body)
    streams = stream_of({"index": 0, "token_ids": []}, part("One"), part("two", "length"))
    given_events = [event(payload) for payload in [{"choices": []}, *streams]]
    whole = Door(QWEN_PLAIN, plan).take_each(given_events).data
    for at in range(len(given_events)):
        door = Door(QWEN_PLAIN, plan).take_each(given_events[:at])
        door.move()
        assert door.take_each(given_events[at:]).data == whole


def test_offsets_of_logprobs_go_on() -> None:
    body = {"prompt": "a", "stream": True, "logprobs": 1}
    plan = plan_of(QWEN_PLAIN, "completion", body)
    parts = [part("One"), part(" two é"), part(" three", "length")]
    for each in parts:
        entries = [{"token_id": number, "logprob": -1.0} for number in each["token_ids"]]
        each["logprobs"] = {"content": [entry | {"top_logprobs": [entry]} for entry in entries]}
    given_events = [event(payload) for payload in stream_of(*parts)]
    whole = Door(QWEN_PLAIN, plan).take_each(given_events).data
    for at in range(len(given_events)):
        door = Door(QWEN_PLAIN, plan).take_each(given_events[:at])
        door.move()
        assert door.take_each(given_events[at:]).data == whole


def test_a_stop_token_that_reads_like_a_stop_string_is_none_afterwards() -> None:
    end = "<|im_end|>"
    body = {"messages": MESSAGES, "stream": True, "n": 2, "stop": end, "skip_special_tokens": False}
    body["stream_options"] = {"include_usage": True}
    plan = plan_of(QWEN_PLAIN, "chat", body)
    streams = stream_of(part("One" + end, "stop"), part("Two" + end, "stop", 1))
    given_events = [event(payload) for payload in streams]
    door = Door(QWEN_PLAIN, plan).take_each(given_events[:1])
    door.move()
    door.take_each(given_events[1:])
    assert door.data == Door(QWEN_PLAIN, plan).take_each(given_events).data
    assert b"cached_tokens" in door.data
    assert not any(advance.aborted for advance in door.advances)


@pytest.mark.parametrize("finish", ["stop", "length", "abort"])
@pytest.mark.parametrize("reason", [None, 248046, "x"])
def test_a_choice_that_has_ended_stays_as_it_was(finish: str, reason: int | str | None) -> None:
    body = {"messages": MESSAGES, "stream": True, "n": 2, "stream_options": {"include_usage": True}}
    plan = plan_of(QWEN, "chat", body)
    ended = part("Hello<|im_end|>", finish) | {"stop_reason": reason}
    given_events = [event(payload) for payload in stream_of(ended, ended | {"index": 1})]
    whole = Door(QWEN, plan).take_each(given_events).data
    assert b"reasoning_tokens" in whole
    for at in range(len(given_events)):
        door = Door(QWEN, plan).take_each(given_events[:at])
        door.move()
        assert door.take_each(given_events[at:]).data == whole


def test_a_journal_takes_a_few_bytes_per_token() -> None:
    plan = plan_of(QWEN_PLAIN, "chat", {"messages": MESSAGES, "stream": True})
    (number,) = encode("qwen", " two")
    door = Door(QWEN_PLAIN, plan)
    for _ in range(1000):
        door.take([event({"choices": [{"index": 0, "token_ids": [number]}]})])
    assert len(list(read(door.journal))) == 1000
    assert len(door.journal) <= 20 * 1000
