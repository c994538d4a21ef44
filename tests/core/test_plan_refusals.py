"""Bodies that are not served: refused as by the coupled server, and never with a bare exception."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.protocol.errors import BadRequest
from tests.core.calling import MAX_MODEL_LEN, QWEN, QWEN_PLAIN, SPM_PLAIN, Json, Setup
from tests.core.coupled import Answer, ScriptError, coupled
from tests.core.front import Door, asked, plan_of
from tests.core.generation import TOOLS
from tests.core.test_front_differential import DEEPSEEK_V3, refusal_body

MESSAGES = [{"role": "user", "content": "Hi"}]

by_setup = pytest.mark.parametrize("setup", (QWEN, QWEN_PLAIN, DEEPSEEK_V3, SPM_PLAIN), ids=str)


def chat(**members: Any) -> Json:
    return {"model": "m", "messages": MESSAGES} | members


def completion(**members: Any) -> Json:
    return {"model": "m", "prompt": "a b"} | members


# Requests the coupled server refuses while it reads or renders them, in the same words.
REFUSED: list[tuple[str, Json]] = [
    ("chat", chat(model="other")),
    ("completion", completion(model="other")),
    ("chat", chat(messages=[])),
    ("chat", chat(messages=[{"role": "user", "content": [{"type": "nonsense"}]}])),
    ("completion", completion(prompt=[])),
    ("completion", completion(prompt="")),
    ("completion", completion(prompt=None)),
    ("completion", completion(prompt=["a"] * 1025)),
    ("completion", completion(prompt=[10**10])),
    ("completion", completion(prompt=[9419] * (MAX_MODEL_LEN + 1))),
    ("chat", chat(messages=[{"role": "user", "content": "a " * 9000}])),
    ("chat", chat(max_tokens=0)),
    ("completion", completion(max_tokens=0)),
    ("completion", completion(max_tokens=9000)),
    ("completion", completion(suffix="x")),
    ("chat", chat(n=0)),
    ("chat", chat(n=100_000)),
    ("chat", chat(temperature=-1)),
    ("chat", chat(top_p=2)),
    ("chat", chat(top_k=-5)),
    ("chat", chat(top_logprobs=3)),
    ("chat", chat(logprobs=True, top_logprobs=-2)),
    ("completion", completion(logprobs=-2)),
    ("chat", chat(prompt_logprobs=1, stream=True)),
    ("completion", completion(prompt_logprobs=1, stream=True)),
    ("chat", chat(stream_options={"include_usage": True})),
    ("chat", chat(tools=[])),
    ("chat", chat(tool_choice="auto")),
    ("chat", chat(tools=TOOLS, tool_choice="nonsense")),
    ("chat", chat(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "g"}})),
    ("chat", chat(add_generation_prompt=True, continue_final_message=True)),
    ("chat", chat(chat_template="{{ x }}")),
    ("chat", chat(response_format={"type": "json_schema"})),
    ("chat", chat(structured_outputs={"json": {}, "regex": "a"})),
    ("chat", chat(stop="")),
    ("chat", chat(min_tokens=5, max_tokens=2)),
    ("chat", chat(logit_bias={"a": 1})),
    ("chat", chat(cache_salt="")),
    ("completion", completion(truncate_prompt_tokens=9000)),
    ("chat", chat(thinking_token_budget=-5)),
]
# Those it refuses because a member has another type; it lists what its schema says of it.
MISTYPED: list[tuple[str, Json, str | None]] = [
    ("chat", chat(messages="x"), "messages"),
    ("chat", chat(messages=["x"]), "messages[0]"),
    ("chat", chat(messages=None), None),
    ("chat", chat(messages=[{"content": "x"}]), "messages[0].role"),
    ("chat", chat(messages=[{"role": "assistant", "tool_calls": 7}]), None),
    ("chat", chat(tools=[{"type": "function"}]), "tools[0].function"),
    ("chat", chat(stop=3), "stop"),
    ("chat", chat(seed="x"), "seed"),
    ("chat", chat(stream="x"), "stream"),
    ("chat", chat(reasoning_effort="x"), "reasoning_effort"),
    ("completion", completion(prompt=[-1]), "prompt[0]"),
    ("completion", completion(prompt={}), "prompt"),
    ("completion", completion(n=None), "n"),
]
# Those an engine without a tokenizer cannot serve.
ON_PURPOSE: list[tuple[str, Json, str]] = [
    ("chat", chat(use_beam_search=True), "use_beam_search"),
    ("completion", completion(use_beam_search=True), "use_beam_search"),
    ("chat", chat(logprobs=True, logprob_token_ids=[1]), "logprob_token_ids"),
    ("completion", completion(logprobs=1, logprob_token_ids=[1]), "logprob_token_ids"),
    ("chat", chat(bad_words=["x"]), "bad_words"),
    ("completion", completion(prompt_embeds="AAAA"), "prompt_embeds"),
    ("completion", completion(stream=True, echo=True, logprobs=1), "echo"),
]


def refusal_of(setup: Setup, endpoint: str, body: Json) -> Answer:
    with pytest.raises(BadRequest) as refused:
        plan_of(setup, endpoint, body)
    answer: Answer = refusal_body(refused.value)
    return answer


@pytest.mark.parametrize(("endpoint", "body"), REFUSED, ids=lambda part: str(part)[-60:])
def test_refusals_are_the_coupled_server_s(endpoint: str, body: Json) -> None:
    theirs = coupled(QWEN_PLAIN).respond(endpoint, body, [])
    assert refusal_of(QWEN_PLAIN, endpoint, body) == theirs


@pytest.mark.parametrize(("endpoint", "body", "param"), MISTYPED, ids=lambda part: str(part)[-60:])
def test_mistyped_members_are_named(endpoint: str, body: Json, param: str | None) -> None:
    theirs = coupled(QWEN_PLAIN).respond(endpoint, body, [])
    ours = refusal_of(QWEN_PLAIN, endpoint, body)
    assert ours.status == theirs.status == 400
    assert ours.payload["error"]["param"] == param


@pytest.mark.parametrize(("endpoint", "body", "param"), ON_PURPOSE)
def test_what_needs_a_tokenizer_in_the_engine_is_refused(
    endpoint: str, body: Json, param: str
) -> None:
    refusal = refusal_of(QWEN, endpoint, body)
    assert refusal.status == 400
    assert refusal.payload["error"]["param"] == param
    assert "is not supported" in refusal.payload["error"]["message"]


@pytest.mark.parametrize("number", [248_320, 2**31, 2**32 - 1])
def test_tokens_no_engine_knows_harm_no_shard(number: int) -> None:
    # The engine refuses them, while a shard opens the stream.
    for body in (completion(prompt=[number]), completion(prompt=[1, number], stop="a")):
        plan = plan_of(QWEN, "completion", body | {"stream": True})
        Door(QWEN, plan)
        (request,) = asked(plan)
        refusal, _ = coupled(QWEN).generate(request, []).payload
        assert refusal["error"]["message"] == f"Token id {number} is out of vocabulary"


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=4,
)
ODD: tuple[Json, ...] = (
    "",
    None,
    7,
    [],
    {},
    [None],
    [{}],
    [{"type": "text"}],
    [{"type": "text", "text": "é"}],
    [{"type": "text", "text": None}],
    [{"type": "refusal", "refusal": "no"}],
    [{"type": "thinking", "thinking": "hm"}],
    [{"type": "image_url", "image_url": {"url": "data:,"}}],
    [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}],
    [{"id": "a", "type": "function", "function": {"name": "f", "arguments": None}}],
    [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}],
    "\ud800",
)
MEMBERS = (
    "content",
    "role",
    "name",
    "tool_calls",
    "tool_call_id",
    "reasoning_content",
    "reasoning",
)
ROLES = ("user", "assistant", "tool", "system", "developer", "function", "nobody", "")


@st.composite
def odd_messages(draw: st.DrawFn) -> Json:
    """Messages of shapes that are hardly right."""
    messages: Json = []
    for _ in range(draw(st.integers(1, 3))):
        message: Json = {"role": draw(st.sampled_from(ROLES)), "content": "x"}
        for _ in range(draw(st.integers(0, 2))):
            value = draw(st.one_of(st.sampled_from(ODD), json_values))
            message[draw(st.sampled_from(MEMBERS))] = value
        messages.append(message)
    return messages


def coupled_refuses(setup: Setup, endpoint: str, body: Json) -> bool:
    """Whether the coupled server refuses a body before its engine is asked for anything."""
    try:
        return coupled(setup).respond(endpoint, body, []).status >= 400
    except ScriptError:
        return False  # It waits for an engine that says nothing.


@by_setup
@given(messages=odd_messages(), member=st.sampled_from(("", "tools", "stop", "n")), odd=json_values)
def test_odd_bodies_are_planned_or_refused(
    setup: Setup, messages: Json, member: str, odd: Json
) -> None:
    body = chat(messages=messages, stream=True) | ({member: odd} if member else {})
    try:
        plan = plan_of(setup, "chat", body)
    except BadRequest:
        assert coupled_refuses(setup, "chat", body)
        return
    Door(setup, plan)


@by_setup
@given(
    prompt=json_values, member=st.sampled_from(("", "echo", "stop", "logprobs")), odd=json_values
)
def test_odd_prompts_are_planned_or_refused(
    setup: Setup, prompt: Json, member: str, odd: Json
) -> None:
    body = completion(prompt=prompt, stream=True) | ({member: odd} if member else {})
    try:
        plan = plan_of(setup, "completion", body)
    except BadRequest as refused:
        # A prompt without a token, which the coupled server's renderer lets pass.
        empty = refused.message == "No token_ids rendered"
        assert empty or coupled_refuses(setup, "completion", body)
        return
    Door(setup, plan)
