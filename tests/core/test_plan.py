"""What the front door asks of the engine, what it hands to the shard, and what it refuses."""

import struct
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm.parser.utils import count_history_tool_calls

from core.protocol.plan import ApiName
from core.vllm_adapter.requests import read_chat_request
from tests.core.calling import (
    MAX_MODEL_LEN,
    QWEN,
    QWEN_PLAIN,
    SPM_PLAIN,
    Json,
    Setup,
    encode,
    model,
)
from tests.core.coupled import Chunk, coupled
from tests.core.front import REQUEST_ID, asked, plan_of, recipe_of
from tests.core.front_generation import cases
from tests.core.generation import HERMES_CALL, TOOLS, named_choice
from tests.core.test_front_differential import DEEPSEEK_V3

MESSAGES = [{"role": "user", "content": "Hi"}]
(END,) = encode("qwen", "<|im_end|>")

by_setup = pytest.mark.parametrize("setup", (QWEN, QWEN_PLAIN, DEEPSEEK_V3, SPM_PLAIN), ids=str)


def chat(**members: Any) -> Json:
    return {"model": "m", "messages": MESSAGES} | members


def completion(**members: Any) -> Json:
    return {"model": "m", "prompt": "a b"} | members


def sampling(endpoint: str, body: Json) -> Json:
    """The sampling parameters of a request with one prompt."""
    (request,) = asked(plan_of(QWEN, endpoint, body))
    return request["sampling_params"]


def test_the_engine_is_told_how_much_to_generate() -> None:
    # vLLM leaves out what equals a default of its own, and 16 is one.
    assert sampling("completion", completion())["max_tokens"] == 16
    assert sampling("completion", completion(max_tokens=16))["max_tokens"] == 16
    assert sampling("chat", chat(max_tokens=16))["max_tokens"] == 16
    plan = plan_of(QWEN, "chat", chat())
    (request,) = plan.engine_requests
    (body,) = asked(plan)
    assert body["sampling_params"]["max_tokens"] == MAX_MODEL_LEN - request.prompt_tokens
    assert sampling("completion", completion(echo=True, max_tokens=0))["max_tokens"] == 1


def test_the_engine_is_told_which_token_ends_a_text() -> None:
    assert sampling("chat", chat())["stop_token_ids"] == [END]
    assert sampling("chat", chat(stop_token_ids=[7]))["stop_token_ids"] == [7, END]
    assert sampling("chat", chat(stop_token_ids=[END]))["stop_token_ids"] == [END]
    assert sampling("chat", chat(ignore_eos=True))["stop_token_ids"] == []
    ignoring = sampling("chat", chat(ignore_eos=True, stop_token_ids=[7]))
    assert (ignoring["ignore_eos"], ignoring["stop_token_ids"]) == (True, [7])


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_stay_here_and_have_the_engine_stream(stream: bool) -> None:
    body = chat(stop=["a", "b"], include_stop_str_in_output=True, stream=stream)
    plan = plan_of(QWEN, "chat", body)
    (request,) = asked(plan)
    assert not request["sampling_params"].keys() & {"stop", "include_stop_str_in_output"}
    assert (plan.stream, plan.engine_streams, request["stream"]) == (stream, True, True)
    # An answer in one piece has usage, and the engine's knows of cached tokens.
    assert request.get("stream_options") == (None if stream else {"include_usage": True})


def test_prompt_logprobs_are_not_streamed() -> None:
    plan = plan_of(QWEN, "chat", chat(stop="a", prompt_logprobs=1))
    (request,) = asked(plan)
    assert (plan.engine_streams, request["stream"]) == (False, False)
    assert request["sampling_params"]["prompt_logprobs"] == 1
    plan = plan_of(QWEN, "completion", completion(echo=True, logprobs=1, stop="a"))
    assert not plan.engine_streams


@pytest.mark.parametrize("continuous", [False, True])
def test_usage_is_asked_for_where_it_is_wanted(continuous: bool) -> None:
    options = {"include_usage": True, "continuous_usage_stats": continuous}
    plan = plan_of(QWEN, "chat", chat(stream=True, stream_options=options))
    (request,) = asked(plan)
    assert request["stream_options"] == {"include_usage": True}
    recipe = recipe_of(plan)
    assert (recipe.include_usage, recipe.continuous_usage) == (True, continuous)
    only = {"continuous_usage_stats": continuous, "include_usage": False}
    recipe = recipe_of(plan_of(QWEN, "chat", chat(stream=True, stream_options=only)))
    assert (recipe.include_usage, recipe.continuous_usage) == (False, False)


def test_every_prompt_is_asked_for_by_a_name_of_its_own() -> None:
    plan = plan_of(QWEN, "completion", completion(prompt=["a b", "é"], n=2))
    assert plan.request_id == f"cmpl-{REQUEST_ID}"
    names = [request.request_id for request in plan.engine_requests]
    assert names == [f"cmpl-{REQUEST_ID}-0", f"cmpl-{REQUEST_ID}-1"]
    assert [request["request_id"] for request in asked(plan)] == names
    assert {request["sampling_params"]["n"] for request in asked(plan)} == {2}
    recipe = recipe_of(plan)
    assert (recipe.api, recipe.samples) == (ApiName.COMPLETION, 2)
    ids = [encode("qwen", "a b"), encode("qwen", "é")]
    assert [request["token_ids"] for request in asked(plan)] == ids
    assert [request.prompt_tokens for request in plan.engine_requests] == [*map(len, ids)]
    assert list(recipe.prompts) == [struct.pack(f"<{len(part)}I", *part) for part in ids]


def test_one_prompt_keeps_the_name_of_the_answer() -> None:
    plan = plan_of(QWEN, "completion", completion(request_id="mine-0"))
    (request,) = plan.engine_requests
    assert request.request_id == plan.request_id == f"cmpl-{REQUEST_ID}"


def test_the_engine_is_asked_for_tokens_alone() -> None:
    body = chat(tools=TOOLS, return_token_ids=True, return_prompt_text=True)
    (request,) = asked(plan_of(QWEN, "chat", body))
    assert request["model"] == "m"
    assert not request.keys() & {"parse_context", "return_token_ids", "token_offsets", "messages"}
    assert "output_kind" not in request["sampling_params"]


# What an engine of a front door is told in other words: stop strings are found by the front door,
# and the end token is a stop token where there is no tokenizer to name it.
OTHER_WORDS = (
    "stop",
    "include_stop_str_in_output",
    "output_text_buffer_length",
    "stop_token_ids",
    "output_kind",
    "skip_clone",
)
# Of no use in a stream, for which vLLM's generate refuses them.
NOT_STREAMED = "prompt_logprobs"


class Asked(NamedTuple):
    """What reaches the engine core for one choice."""

    prompt: list[int] | None
    sampling: Json
    ends: set[int]
    others: Json


def engine_core(setup: Setup, streams: bool) -> list[Asked]:
    """What the engine core was asked last, choice by choice."""
    left_out = {*OTHER_WORDS, NOT_STREAMED if streams else ""}
    requests = sorted(coupled(setup)._core._requests.items())
    return [_asked(request, left_out) for _, request in requests]


def _asked(request: Any, left_out: set[str]) -> Asked:
    params = request.sampling_params
    dumped = {
        name: value
        for name, value in msgspec.structs.asdict(params).items()
        if not (name.startswith("_") or name in left_out)
    }
    others = {
        name: getattr(request, name)
        for name in ("cache_salt", "priority", "reasoning_ended", "reasoning_parser_kwargs")
    }
    return Asked(request.prompt_token_ids, dumped, set(params.all_stop_token_ids), others)


@by_setup
@given(data=st.data())
def test_the_engine_core_is_asked_as_by_the_coupled_server(
    setup: Setup, data: st.DataObject
) -> None:
    case = data.draw(cases(setup, stream=data.draw(st.booleans())))
    body = case.body | data.draw(st.fixed_dictionaries({}, optional=SAMPLING))
    if coupled(setup).respond(case.endpoint, body, case.chunks).status != 200:
        return
    plan = plan_of(setup, case.endpoint, body)
    theirs = engine_core(setup, plan.engine_streams)
    ours = []
    for request in asked(plan):
        chunks = [Chunk(0, choice, (1,), "length") for choice in range(case.samples)]
        assert coupled(setup).generate(request, chunks).status == 200
        ours += engine_core(setup, plan.engine_streams)
    assert ours == theirs


SAMPLING: dict[str, Any] = {
    "temperature": st.sampled_from((0, 0.5, 1.0)),
    "top_p": st.sampled_from((0.5, 1.0)),
    "top_k": st.integers(0, 3),
    "seed": st.integers(0, 2**63 - 1),
    "presence_penalty": st.sampled_from((-1, 0.5)),
    "logit_bias": st.just({"7": 1.5}),
    "allowed_token_ids": st.just([7, 8]),
    "structured_outputs": st.sampled_from(({"choice": ["a", "b"]}, {"regex": "[ab]+"})),
    "response_format": st.just({"type": "json_object"}),
    "cache_salt": st.just("salt"),
    "priority": st.just(0),
    "vllm_xargs": st.just({"a": 1}),
    "spaces_between_special_tokens": st.booleans(),
    "truncate_prompt_tokens": st.integers(1, 3),
    "repetition_penalty": st.just(1.1),
}

HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}], "name": "Ann"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Hm",
        "tool_calls": [
            {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": "{}"}}
            for i, name in enumerate(("get_weather", "find_station"))
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "content": "Rain"},
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "Oslo S"}]},
    {"role": "assistant", "content": "So", "reasoning": "Well"},
    {"role": "user", "content": "And now?"},
]
CHATS = (
    chat(messages=HISTORY),
    chat(messages=HISTORY, tools=TOOLS),
    chat(messages=HISTORY, tools=TOOLS, tool_choice="none", n=2),
    chat(messages=HISTORY, tools=TOOLS, tool_choice=named_choice, parallel_tool_calls=False),
    chat(messages=HISTORY, include_reasoning=False, logprobs=True, top_logprobs=2),
    chat(messages=HISTORY, chat_template_kwargs={"enable_thinking": False}),
    chat(messages=HISTORY, stop=["a"], min_tokens=2, skip_special_tokens=False),
)


@pytest.mark.parametrize("body", CHATS, ids=range(len(CHATS)))
def test_parsers_see_the_request_as_if_it_were_whole(body: Json) -> None:
    recipe = recipe_of(plan_of(QWEN, "chat", body))
    assert len(recipe.request) < len(msgspec.json.encode(body))
    slim = model(QWEN).chat_context(recipe.request)
    whole = model(QWEN).chat_context(msgspec.json.encode(body))
    assert slim.rules == whole.rules
    # Parsers that number their calls go on where the history ended.
    histories = [read_chat_request(raw) for raw in (recipe.request, msgspec.json.encode(body))]
    assert [count_history_tool_calls(history) for history in histories] == [2, 2]
    for text in ("Hm</think>\n\nSo.", f"Hm</think>\n\n{HERMES_CALL}{HERMES_CALL}", "[]", "{}"):
        ids = encode("qwen", text)
        found = [context.parse(text, ids, [1], count_reasoning=True) for context in (slim, whole)]
        without_ids = [
            part._replace(calls=[call._replace(id=None) for call in part.calls]) for part in found
        ]
        assert without_ids[0] == without_ids[1]


def test_texts_of_the_prompt_stay_behind() -> None:
    secret = "something long and private"
    messages = [*HISTORY, {"role": "user", "content": [{"type": "text", "text": secret}]}]
    assert secret.encode() not in plan_of(QWEN, "chat", chat(messages=messages)).recipe
    assert secret.encode() not in plan_of(QWEN, "completion", completion(prompt=secret)).recipe
