"""Streamed calls without a parser: an engine chunk and a carried state into a chunk and a state."""

from collections.abc import Callable
from typing import NamedTuple

from core.derender.carried_window import CarriedWindow, keep_creation, keep_identity
from core.derender.contexts import ContextStore
from core.formats.chat.chunks import chat_choice, chat_chunk
from core.formats.completions.chunks import completion_choice, completion_chunk
from core.formats.format import Head
from core.formats.sse import to_json
from core.formats.usage import chunk_usage
from core.protocol.bounds import (
    check_chunk,
    check_context,
    check_state,
    chunk_decoder,
    read_prompt_tokens,
    state_decoder,
)
from core.protocol.calls import DerenderChatChunk, DerenderCompletionChunk
from core.protocol.generate import GenerateChunk
from core.protocol.members import decode
from core.protocol.openai import ChatStreamAnswer, CompletionStreamAnswer, Delta
from core.protocol.rules import OutputRules
from core.text.decoding import seed_state
from core.text.logprobs import LogprobShape
from core.text.model_tools import ModelTools


class _Resumed(NamedTuple):
    """A streamed call that passed its checks."""

    window: CarriedWindow
    head: Head
    chunk: GenerateChunk
    prompt_tokens: int | None
    returned_ids: list[int] | None
    """Prompt IDs to return, where the request asks for them."""


def derender_chat_chunk(
    tools: ModelTools, contexts: ContextStore, call: DerenderChatChunk
) -> bytes:
    """The JSON of a `ChatStreamAnswer`.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """

    def rules() -> OutputRules:
        return tools.chat_rules(contexts.chat(call.request, call.request_digest))

    window, head, chunk, prompt_tokens, returned = _resume(
        tools, contexts, call, rules, LogprobShape.CHAT
    )
    state, choices = window.state, []
    for part in chunk.choices:
        step = window.take(part)
        delta = Delta(content=step.text or None)
        choices.append(chat_choice(window.rules, step, delta, first=not state.role_sent))
        state.role_sent = True
    usage = chunk_usage(chunk.usage, prompt_tokens, None)
    answer = ChatStreamAnswer(
        chunk=chat_chunk(head, chunk, choices, usage, returned), stream_state=state
    )
    return to_json(answer)


def derender_completion_chunk(
    tools: ModelTools, contexts: ContextStore, call: DerenderCompletionChunk
) -> bytes:
    """The JSON of a `CompletionStreamAnswer`.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """

    def rules() -> OutputRules:
        return tools.completion_rules(call.request)

    window, head, chunk, prompt_tokens, returned = _resume(
        tools, contexts, call, rules, LogprobShape.COMPLETION
    )
    choices = [
        completion_choice(window.rules, window.take(part), chunk.request_id, returned)
        for part in chunk.choices
    ]
    usage = chunk_usage(chunk.usage, prompt_tokens, None)
    answer = CompletionStreamAnswer(
        chunk=completion_chunk(head, chunk, choices, usage), stream_state=window.state
    )
    return to_json(answer)


def returned_prompt_ids(
    chunk: GenerateChunk, prompt_ids: list[int] | None, prompt_tokens: int | None, *, first: bool
) -> list[int] | None:
    """The prompt IDs to return: the engine's; on the first chunk also the caller's, if whole."""
    whole = prompt_ids is not None and len(prompt_ids) == prompt_tokens
    return (
        prompt_ids if first and whole and chunk.prompt_token_ids is None else chunk.prompt_token_ids
    )


def _resume(
    tools: ModelTools,
    contexts: ContextStore,
    call: DerenderChatChunk | DerenderCompletionChunk,
    rules_of: Callable[[], OutputRules],
    shape: LogprobShape,
) -> _Resumed:
    """Check a call and resume its stream; its request is read after the bounds are checked."""
    prompt_tokens = read_prompt_tokens(call.prompt_tokens)
    prompt_ids = contexts.prompt(call.prompt_token_ids, call.prompt_digest)
    chunk = decode(chunk_decoder, call.generate, "generate_chunk")
    check_chunk(chunk, tools.limits)
    state = decode(state_decoder, call.stream_state, "stream_state") if call.stream_state else None
    if state is not None:
        check_state(state, tools.limits)
    history = len(state.output_token_ids) if state is not None else 0
    check_context(len(prompt_ids or ()), history, chunk, tools.limits)
    rules, first = rules_of(), state is None
    if state is None:
        seed = prompt_ids if prompt_ids is not None else chunk.prompt_token_ids
        state = seed_state(tools.tokens, seed, rules.skip_special_tokens)
    keep_identity(state, call.stream)
    created = keep_creation(state, call.created)
    head = Head(chunk.request_id or call.fallback_id, created, call.model)
    returned = returned_prompt_ids(chunk, prompt_ids, prompt_tokens, first=first)
    shown = returned if rules.return_token_ids else None
    return _Resumed(CarriedWindow(tools, rules, state, shape), head, chunk, prompt_tokens, shown)
