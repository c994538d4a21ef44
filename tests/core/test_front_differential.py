"""Generated requests and outputs: the front door answers what vLLM's coupled server answers.

The whole chain is held against it: what the plan asks of the engine goes to vLLM's own generate,
and what that says to the front door.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.protocol.errors import BadRequest, RenderRefused
from core.protocol.plan import Plan
from tests.core.calling import DEEPSEEK, QWEN, QWEN_PLAIN, SPM_PLAIN, Json, Setup, encode
from tests.core.coupled import Answer, Chunk, coupled
from tests.core.front import comparable, plan_of, serve_collected, serve_stream, serve_whole
from tests.core.front_generation import Case, cases, engine_bodies, engine_events

DEEPSEEK_V3 = DEEPSEEK._replace(tool_parser="deepseek_v3")
SETUPS = (QWEN, QWEN_PLAIN, DEEPSEEK_V3, SPM_PLAIN)
# Null members that 0.33 sends and the front door leaves out.
LEFT_OUT = ("kv_transfer_params", "weight_versions")
# What an engine says at the end of a choice, which it does not reach where a stop string ends one.
AT_THE_END = "weight_versions"
MESSAGES = [{"role": "user", "content": "Hi"}]
(END,) = encode("qwen", "<|im_end|>")

# An example takes some ten milliseconds, and there is much to combine.
more = settings(max_examples=max(30, settings().max_examples))
by_setup = pytest.mark.parametrize("setup", SETUPS, ids=str)


def shown(answer: Json) -> Json:
    """An answer as far as it must be equal."""
    return without_nulls(comparable(answer))


def without_nulls(answer: Json) -> Json:
    if isinstance(answer, list):
        return [without_nulls(part) for part in answer]
    if not isinstance(answer, dict):
        return answer
    cut = isinstance(answer.get("stop_reason"), str)
    return {
        key: without_nulls(value)
        for key, value in answer.items()
        if not (key in LEFT_OUT and value is None) and not (cut and key == AT_THE_END)
    }


@by_setup
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@more
@given(data=st.data())
def test_answers(setup: Setup, stream: bool, data: st.DataObject) -> None:
    check_same(setup, data, data.draw(cases(setup, stream=stream)))


@pytest.mark.parametrize("setup", (QWEN, DEEPSEEK_V3), ids=str)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@more
@given(data=st.data())
def test_tool_calls(setup: Setup, stream: bool, data: st.DataObject) -> None:
    check_same(setup, data, data.draw(cases(setup, stream=stream, calls=True)))


def check_same(setup: Setup, data: st.DataObject, case: Case) -> None:
    theirs = coupled(setup).respond(case.endpoint, case.body, case.chunks)
    if theirs.status != 200:
        check_refused(setup, case, theirs)
        return
    plan = plan_of(setup, case.endpoint, case.body)
    ours = answered(setup, case, plan, tokenizer=data.draw(st.booleans()))
    assert shown(ours) == shown(theirs.payload)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", ["chat", "completion"])
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, None),
        ({"stop_token_ids": [END]}, None),
        ({"stop_token_ids": [END], "ignore_eos": True}, END),
        ({"include_stop_str_in_output": True, "skip_special_tokens": False}, None),
        ({"stop": "never"}, None),
    ],
    ids=str,
)
def test_an_end_token_that_the_engine_names_is_no_stop_token(
    endpoint: str, members: Json, reason: int | None, stream: bool
) -> None:
    asked_for = {"prompt": "a"} if endpoint == "completion" else {"messages": MESSAGES}
    chunks = [Chunk(0, 0, (9419,)), Chunk(0, 0, (END,), "stop", reason)]
    case = Case(endpoint, {"model": "m", "stream": stream} | asked_for | members, chunks)
    theirs = coupled(QWEN_PLAIN).respond(endpoint, case.body, chunks)
    plan = plan_of(QWEN_PLAIN, endpoint, case.body)
    ours = answered(QWEN_PLAIN, case, plan, tokenizer=False)
    assert shown(ours) == shown(theirs.payload)
    last = ours[-2] if stream else ours
    assert last["choices"][0]["stop_reason"] == reason


def answered(setup: Setup, case: Case, plan: Plan, *, tokenizer: bool) -> Json:
    """What the front door makes of what the engine says."""
    if not plan.engine_streams:
        return serve_whole(setup, plan, engine_bodies(setup, case, plan, tokenizer=tokenizer))
    given_events = engine_events(setup, case, plan, tokenizer=tokenizer)
    serve = serve_stream if plan.stream else serve_collected
    return serve(setup, plan, given_events)


def check_refused(setup: Setup, case: Case, theirs: Answer) -> None:
    with pytest.raises(BadRequest) as refused:
        plan_of(setup, case.endpoint, case.body)
    assert refusal_body(refused.value) == theirs


def refusal_body(error: BadRequest) -> Any:
    """How the gateway answers a refusal."""
    status, kind = 400, "BadRequestError"
    if isinstance(error, RenderRefused):
        status, kind = error.status, error.type
    body = {"message": error.message, "type": kind, "param": error.param, "code": status}
    return Answer(status, {"error": body})
