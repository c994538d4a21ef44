"""Generated inputs: our answers equal those of vLLM's own derenderer, field for field.

`oracle` says where the coupled server differs from vLLM's derenderer and is followed instead.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import decoders

from tests.core import generation
from tests.core.calling import (
    DEEPSEEK,
    DEEPSEEK_PLAIN,
    QWEN,
    QWEN_CODER,
    QWEN_PLAIN,
    QWEN_REASONING,
    QWEN_TOOLS,
    SPM_PLAIN,
    SPM_TOOLS,
    Json,
    Setup,
    answer,
    tokens,
)
from tests.core.oracle import comparable, comparable_chunk, oracle

CHAT = (QWEN, QWEN_CODER, QWEN_REASONING, QWEN_TOOLS, QWEN_PLAIN, DEEPSEEK, DEEPSEEK_PLAIN)
SPM = (SPM_PLAIN, SPM_TOOLS)
COMPLETION = (QWEN_PLAIN, DEEPSEEK_PLAIN, SPM_PLAIN)
REFUSED = "refused"


def by_setup(setups: tuple[Setup, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("setup", setups, ids=str)


@by_setup((*CHAT, *SPM))
@given(data=st.data())
def test_chat(setup: Setup, data: st.DataObject) -> None:
    prompt = data.draw(generation.prompts(setup, required=False))
    choices = [data.draw(choice(setup, prompt, i)) for i in range(data.draw(st.integers(1, 3)))]
    body = {
        "generate_response": response_of(choices, prompt),
        "prompt_tokens": prompt.length,
        "prompt_token_ids": prompt.caller,
    }
    if setup.tool_parser or setup.reasoning_parser or data.draw(st.booleans()):
        body["chat_request"] = data.draw(
            generation.chat_requests([choices[0]["token_ids"][-1]], False)
        )
    theirs = copy.deepcopy(body)
    # The parser's prompt, and the prompt IDs to return: the coupled server knows its prompt, while
    # vLLM's derenderer takes it from the engine's response alone. Ours falls back to the caller's.
    engine = theirs["generate_response"]
    if engine["prompt_token_ids"] is None:
        engine["prompt_token_ids"] = prompt.caller
    check_same(setup, body, theirs, "chat", data.draw(st.booleans()))


@by_setup(COMPLETION)
@given(data=st.data())
def test_completion(setup: Setup, data: st.DataObject) -> None:
    responses, counts, callers = [], [], []
    for _ in range(data.draw(st.integers(1, 3))):
        prompt = data.draw(generation.prompts(setup, required=False))
        choices = [data.draw(choice(setup, prompt, i)) for i in range(data.draw(st.integers(1, 2)))]
        responses.append(response_of(choices, prompt))
        counts.append(prompt.length)
        callers.append(prompt.caller)
    body = {
        "generate_responses": responses,
        "prompt_tokens": counts,
        "prompt_token_ids": callers,
    }
    if data.draw(st.booleans()):
        last = responses[0]["choices"][0]["token_ids"][-1]
        body["completion_request"] = data.draw(generation.completion_requests([last], False))
    theirs = copy.deepcopy(body)
    for engine, caller in zip(theirs["generate_responses"], callers, strict=True):
        if engine["prompt_token_ids"] is None:
            engine["prompt_token_ids"] = caller
    check_same(setup, body, theirs, "completion", data.draw(st.booleans()))


@by_setup((*CHAT, *SPM))
@given(data=st.data())
def test_chat_stream(setup: Setup, data: st.DataObject) -> None:
    parses = bool(setup.tool_parser or setup.reasoning_parser)
    prompt = data.draw(generation.prompts(setup, required=parses))
    ended = data.draw(choice(setup, prompt, data.draw(st.integers(0, 2)), stop_strings=False))
    shared: Json = {"prompt_tokens": prompt.length, "prompt_token_ids": prompt.caller}
    if parses or data.draw(st.booleans()):
        request = data.draw(generation.chat_requests([ended["token_ids"][-1]], True))
        shared["chat_request"] = request
    check_same_stream(setup, data, chunks_of(data, ended, prompt), shared, "chat")


@by_setup(COMPLETION)
@given(data=st.data())
def test_completion_stream(setup: Setup, data: st.DataObject) -> None:
    prompt = data.draw(generation.prompts(setup, required=False))
    ended = data.draw(choice(setup, prompt, data.draw(st.integers(0, 2)), stop_strings=False))
    shared: Json = {"prompt_tokens": prompt.length, "prompt_token_ids": prompt.caller}
    if data.draw(st.booleans()):
        request = data.draw(generation.completion_requests([ended["token_ids"][-1]], True))
        shared["completion_request"] = request
    check_same_stream(setup, data, chunks_of(data, ended, prompt), shared, "completion")


@st.composite
def choice(
    draw: generation.Draw,
    setup: Setup,
    prompt: generation.Prompt,
    index: int,
    stop_strings: bool = True,
) -> Json:
    """One complete engine choice."""
    ids = draw(generation.output_ids(setup.model))
    ending = draw(generation.endings(setup.model, ids, stop_strings))
    assume(not takes_text_back(setup.model, prompt, ending.ids))
    shown = draw(st.booleans())
    return {
        "index": index,
        "token_ids": ending.ids,
        "finish_reason": ending.finish_reason,
        "stop_reason": ending.stop_reason,
        "logprobs": draw(generation.logprobs(setup.model, ending.ids)) if shown else None,
    }


def takes_text_back(model: str, prompt: generation.Prompt, ids: list[int]) -> bool:
    """Whether byte fallback turns text that was already settled into U+FFFD.

    The engine's decoder starts over there (vLLM issue 17448), vLLM's derenderer does not;
    `test_decoding` holds such tokens against the engine's decoder.
    """
    if model != "spm":
        return False
    seed = prompt.caller or prompt.engine or []
    return any(not steps_through(model, seed, ids, skip) for skip in (False, True))


def steps_through(model: str, seed: list[int], ids: list[int], skip: bool) -> bool:
    stream = decoders.DecodeStream(ids=seed, skip_special_tokens=skip)
    backend = tokens(model).tokenizer.backend_tokenizer
    try:
        for token_id in ids:
            stream.step(backend, token_id)
    except Exception as error:  # noqa: BLE001 - the library raises no class of its own
        assert str(error).startswith("Invalid prefix")
        return False
    return True


def response_of(choices: list[Json], prompt: generation.Prompt) -> Json:
    return {
        "request_id": "generate-tokens-r",
        "choices": choices,
        "prompt_token_ids": prompt.engine,
        "kv_transfer_params": {"a": [1]},
    }


def chunks_of(data: st.DataObject, ended: Json, prompt: generation.Prompt) -> list[Json]:
    """A choice as engine chunks of 1 to 9 tokens, its end with the last or apart, then usage."""
    sizes = st.sampled_from((1, 1, 1, 2, 3, 5, 9))
    size = data.draw(st.one_of(st.just(1), sizes))
    chunks, start, ids = [], 0, ended["token_ids"]
    while start < len(ids):
        chunks.append(part_of(ended, start, start + size))
        start += size
        size = data.draw(sizes)
    if data.draw(st.booleans()):
        chunks.append(part_of(ended, len(ids), len(ids)))
    chunks[-1] |= {key: ended[key] for key in ("finish_reason", "stop_reason")}
    answered: list[Json] = [
        {"request_id": "generate-tokens-r", "choices": [part]} for part in chunks
    ]
    answered[0]["prompt_token_ids"] = prompt.engine
    usage = {"prompt_tokens": 3, "completion_tokens": len(ids), "total_tokens": 3 + len(ids)}
    if data.draw(st.booleans()):
        answered.append({"request_id": "generate-tokens-r", "choices": [], "usage": usage})
    return answered


def part_of(ended: Json, start: int, end: int) -> Json:
    part = {"index": ended["index"], "token_ids": ended["token_ids"][start:end]}
    if ended["logprobs"] is not None:
        part["logprobs"] = {"content": ended["logprobs"]["content"][start:end]}
    return part


def check_same(setup: Setup, body: Json, theirs: Json, endpoint: str, placeholders: bool) -> None:
    """Both answers are the same, or both refuse."""
    shaped = generation.with_placeholders(body) if placeholders else body
    ours = answered(answer, setup, shaped, endpoint)
    expected = answered(oracle(setup).answer, theirs, endpoint)
    if REFUSED not in (ours, expected):
        ours, expected = comparable(ours), comparable(expected)
    assert ours == expected


def check_same_stream(
    setup: Setup, data: st.DataObject, chunks: list[Json], shared: Json, endpoint: str
) -> None:
    """Every chunk and state is the same, whichever side made the state that is carried."""
    carried = data.draw(st.lists(st.sampled_from((None, 0, 1)), min_size=1, max_size=8))
    states: list[Json] = [None, None]
    for i, chunk in enumerate(chunks):
        body = {"stream": True, "generate_chunk": chunk, **shared}
        ours = answered(answer, setup, body | {"stream_state": states[0]}, endpoint)
        theirs = answered(oracle(setup).answer, body | {"stream_state": states[1]}, endpoint)
        if REFUSED in (ours, theirs):
            assert ours == theirs
            return
        assert comparable_chunk(ours) == comparable_chunk(with_caller_prompt(theirs, ours))
        made = [ours["stream_state"], theirs["stream_state"]]
        maker = carried[i % len(carried)]
        states = made if maker is None else [made[maker]] * 2


def with_caller_prompt(theirs: Json, ours: Json) -> Json:
    """Their chunk with the caller's prompt IDs where the engine sent none.

    The coupled server returns them with the first chunk; vLLM's derenderer knows the engine's only.
    """
    holders = [theirs["chunk"], *theirs["chunk"]["choices"]]
    for held, our in zip(holders, [ours["chunk"], *ours["chunk"]["choices"]], strict=True):
        if held.get("prompt_token_ids", 0) is None:
            held["prompt_token_ids"] = our["prompt_token_ids"]
    return theirs


def answered(call: Callable[..., Json], *arguments: Any) -> Json:
    """What a call answers; every error counts as a refusal.

    A parser that fails on an output raises whatever it raises, on both sides.
    """
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001
        return REFUSED
