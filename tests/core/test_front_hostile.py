"""An engine that answers badly: the stream ends with the right fault, after what came before it.

Nothing an engine says raises anything but a `DerenderError`, and what ended stays ended.
"""

import copy
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.protocol.errors import EngineFailed, EngineRefused, FaultCode
from core.protocol.plan import Advance, Plan
from core.vllm_adapter.parsing import ParserStream
from tests.core.calling import MAX_MODEL_LEN, QWEN, QWEN_PLAIN, Json, tokens
from tests.core.front import DONE, Door, event, payloads, plan_of, serve_whole
from tests.core.front_faults import END, ERRORS, HARMLESS, LOGPROB, NO_ANSWER, NO_CHUNK, USAGE, one

MESSAGES = [{"role": "user", "content": "Hi"}]
VOCABULARY = tokens("qwen").size
PLACES = ("first", "middle", "last")


def chat_plan(**members: Any) -> Plan:
    return plan_of(QWEN, "chat", {"messages": MESSAGES, "stream": True} | members)


def completion_plan(**members: Any) -> Plan:
    return plan_of(QWEN, "completion", {"prompt": "a b", "stream": True} | members)


PLANS = {
    "chat": chat_plan,
    "completion": completion_plan,
    "collected": lambda: chat_plan(stream=False, stop=["xyz"]),
}


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    made: Plan = PLANS[request.param]()
    return made


def placed(payload: Json, place: str) -> list[Json]:
    """A stream with an event in some place."""
    stream: list[Json] = [one(), one(), {"choices": [END]}, USAGE, DONE]
    stream.insert({"first": 0, "middle": 2, "last": 4}[place], payload)
    return stream


def failed(plan: Plan, stream: list[Json]) -> Advance:
    """The last advance of a stream that fails, which has ended for good."""
    door = Door(QWEN, plan)
    before = b""
    for payload in stream:
        advance = door.take([event(payload)])
        if advance.fault is not None:
            break
        before = door.data
    assert advance.fault is not None
    assert advance.done
    check_sent(plan, before, stream[: stream.index(payload)])
    check_ended(door)
    # All of it in one frame: what came before goes out with the fault.
    framed = Door(QWEN, plan)
    whole = framed.take([event(payload) for payload in stream])
    assert (whole.data, whole.fault, whole.done) == (door.data, advance.fault, True)
    check_ended(framed)
    return advance


def check_sent(plan: Plan, data: bytes, stream: list[Json]) -> None:
    found = payloads(data)
    assert DONE not in found
    assert bool(found) == (plan.stream and any(payload["choices"] for payload in stream))


def check_ended(door: Door) -> None:
    again = door.take([event(one()), event(DONE)])
    assert (again.data, again.done, again.fault, again.tokens) == (b"", True, None, 0)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("payload", NO_CHUNK, ids=lambda payload: str(payload)[:40])
def test_what_is_no_chunk_ends_the_stream(plan: Plan, payload: Json, place: str) -> None:
    if place == "last" and isinstance(payload, dict) and payload.get("choices"):
        # A choice that has ended takes nothing more, as long as it can be read.
        door = Door(QWEN, plan).take_each(map(event, placed(payload, place)))
        assert door.ended
        return
    fault = failed(plan, placed(payload, place)).fault
    assert fault is not None
    assert isinstance(fault.error(), EngineFailed)
    assert fault.message.startswith("the engine sent ")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("payload", HARMLESS, ids=lambda payload: str(payload)[:40])
def test_what_says_nothing_is_passed_over(plan: Plan, payload: Json, place: str) -> None:
    door = Door(QWEN, plan).take_each(map(event, placed(payload, place)))
    assert door.ended
    assert door.advances[-1].fault is None


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=lambda part: str(part)[:30])
def test_an_error_of_the_engine_is_passed_on(
    plan: Plan, error: Json, expected: tuple[str, str, int], place: str
) -> None:
    fault = failed(plan, placed({"error": error}, place)).fault
    assert fault is not None
    refused = fault.error()
    assert isinstance(refused, EngineRefused)
    assert (refused.message, refused.type, refused.status) == expected


@pytest.mark.parametrize("place", ["first", "middle"])
def test_a_failed_generation_is_an_internal_fault(plan: Plan, place: str) -> None:
    payload = one(token_ids=[], finish_reason="error")
    door = Door(QWEN, plan).take_each(map(event, placed(payload, place)))
    fault = door.advances[-1].fault
    assert fault is not None
    assert fault.code is FaultCode.INTERNAL
    check_ended(door)


def test_a_stream_that_ends_early_has_failed(plan: Plan) -> None:
    for stream in ([DONE], [one(), DONE], [USAGE, DONE], [one(), USAGE, DONE]):
        fault = failed(plan, stream).fault
        assert fault is not None
        assert fault.code is FaultCode.ENGINE_FAILED
        assert "ended before choice 0 did" in fault.message


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_a_choice_that_never_ends_is_missed(kind: str) -> None:
    plan = PLANS[kind](n=2)  # type: ignore[call-arg]
    fault = failed(plan, [one(), {"choices": [END]}, one(index=1), DONE]).fault
    assert fault is not None
    assert "ended before choice 1 did" in fault.message


def test_what_follows_an_end_belongs_to_no_answer(plan: Plan) -> None:
    usual = Door(QWEN, plan).take_each(map(event, [one(), {"choices": [END]}, USAGE, DONE]))
    more = [one(), {"choices": [END]}, one(), {"choices": [END]}, USAGE, DONE, one(), DONE]
    talkative = Door(QWEN, plan)
    talkative.take([event(payload) for payload in more])
    assert talkative.ended
    assert talkative.data == usual.data
    assert talkative.advances[-1].fault is None


def test_usage_need_not_come() -> None:
    plan = chat_plan(stream_options={"include_usage": True})
    *_, usage, done = payloads(
        Door(QWEN, plan).take_each(map(event, [{"choices": [END]}, DONE])).data
    )
    assert done == DONE
    (request,) = plan.engine_requests
    assert usage["usage"]["prompt_tokens"] == request.prompt_tokens
    assert usage["usage"]["completion_tokens"] == 1


def test_an_endless_generation_is_given_up(plan: Plan) -> None:
    door = Door(QWEN, plan)
    half = event(one(token_ids=[9419] * (MAX_MODEL_LEN // 2)))
    assert door.take([half]).fault is None
    assert door.take([half]).fault is None
    fault = door.take([event(one())]).fault
    assert fault is not None
    assert fault.code is FaultCode.ENGINE_FAILED
    assert "past the model's context" in fault.message
    check_ended(door)


def test_members_passed_through_cannot_break_events() -> None:
    chunk = b'{"choices":[{"index":0,"token_ids":[9419],"finish_reason":"stop"}],\r\n'
    chunk += b'"kv_transfer_params":{\n\n"a":\r1}}'
    door = Door(QWEN, chat_plan()).take_each([event(chunk), event(DONE)])
    *_, last, done = payloads(door.data)
    assert (last["kv_transfer_params"], done) == ({"a": 1}, DONE)


def test_a_parser_that_fails_is_our_fault_after_what_came_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step, calls = ParserStream.step, []

    def fails(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise TypeError("a bug")
        return step(*arguments)

    monkeypatch.setattr(ParserStream, "step", fails)
    door = Door(QWEN, chat_plan(chat_template_kwargs={"enable_thinking": False}))
    advance = door.take([event(one()) for _ in range(5)])
    assert advance.fault is not None
    assert advance.fault.code is FaultCode.INTERNAL
    assert advance.tokens
    assert len(payloads(advance.data)) == 3
    check_ended(door)
    assert caplog.records[-1].__dict__["request_id"] == "chatcmpl-front"


@pytest.mark.parametrize("endpoint", ["chat", "completion"])
@pytest.mark.parametrize(("body", "error"), NO_ANSWER, ids=lambda part: str(part)[:40])
def test_what_is_no_answer_has_failed(endpoint: str, body: Json, error: type[Exception]) -> None:
    plan = PLANS[endpoint](stream=False)  # type: ignore[call-arg]
    with pytest.raises(error) as refused:
        serve_whole(QWEN, plan, [body])
    assert refused.type is error


def test_an_answer_may_be_without_tokens() -> None:
    nothing = {"choices": [{"index": 0, "token_ids": [], "finish_reason": "abort"}]}
    (choice,) = serve_whole(QWEN, chat_plan(stream=False), [nothing])["choices"]
    assert choice["finish_reason"] == "abort"
    (choice,) = serve_whole(QWEN, completion_plan(stream=False), [nothing])["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("", "abort")


def test_echo_needs_logprobs_of_the_whole_prompt() -> None:
    plan = completion_plan(stream=False, echo=True, logprobs=1)
    whole = {"choices": [END | {"logprobs": {"content": [LOGPROB]}}]}
    with pytest.raises(EngineFailed, match="logprobs of 0 prompt tokens"):
        serve_whole(QWEN, plan, [whole])


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, VOCABULARY), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


@st.composite
def mangled(draw: st.DrawFn) -> Json:
    """An event with some member replaced by anything."""
    payload: Json = copy.deepcopy(draw(st.sampled_from([one(), {"choices": [END]}, USAGE])))
    holders = [payload, *payload["choices"]]
    holder = draw(st.sampled_from(holders))
    names = ("index", "token_ids", "logprobs", "finish_reason", "stop_reason", "usage", "choices")
    holder[draw(st.sampled_from((*names, "error", "metrics", "kv_transfer_params")))] = draw(
        json_values
    )
    return payload


@pytest.mark.parametrize("kind", PLANS)
@given(stream=st.lists(mangled(), max_size=5), seed=st.integers(0, 9))
def test_anything_ends_in_an_answer_or_a_fault(kind: str, stream: list[Json], seed: int) -> None:
    door = Door(QWEN if seed % 2 else QWEN_PLAIN, PLANS[kind]())
    for payload in [*stream, {"choices": [END]}, DONE]:
        frame = [event(payload)] * random.Random(seed).randint(1, 2)
        door.take(frame)
    assert door.ended
    check_ended(door)
