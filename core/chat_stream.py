"""Streamed chat: one engine chunk and the carried state into one chunk and the next state."""

from collections.abc import Sequence
from typing import cast

from msgspec import Raw

from core import openai
from core.bounds import (
    check_chunk,
    check_context,
    check_state,
    chunk_decoder,
    decode,
    state_decoder,
)
from core.errors import BadRequest, DerenderError
from core.generate import NOTHING, GenerateChunk, StreamChoice, StreamState
from core.ids import tool_call_id
from core.live import LiveStep, LiveStream
from core.logprobs import context_tail
from core.plain import PlainStream, identify, resume, returned_prompt_ids
from core.rules import OutputRules
from core.server import Server
from core.usage import chunk_usage
from core.wire import Call


def derender_chat_stream(server: Server, call: Call) -> bytes:
    """Answer a streamed chat call with the JSON of a `ChatStreamAnswer`.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """
    prompt_tokens = server.prompt_tokens(call)
    prompt_ids = server.prompt_ids(call)
    if server.model.parses:
        return _parsed(server, call, prompt_ids, prompt_tokens)
    return _plain(server, call, prompt_ids, prompt_tokens)


def _plain(
    server: Server, call: Call, prompt_ids: list[int] | None, prompt_tokens: int | None
) -> bytes:
    stream, chunk = resume(
        server, call, prompt_ids, lambda: server.default_rules(server.chat_context(call))
    )
    choices = [_plain_choice(stream, choice) for choice in chunk.choices]
    returned = returned_prompt_ids(chunk, prompt_ids, prompt_tokens, stream.first)
    usage = chunk_usage(chunk.usage, prompt_tokens, None)
    shown = returned if stream.rules.return_token_ids else None
    return _encode(call, chunk, choices, usage, shown, stream.state)


def _plain_choice(stream: PlainStream, choice: StreamChoice) -> openai.ChatStreamChoice:
    logprobs = _logprobs(stream.server, stream.rules, choice, stream.state)
    step = stream.advance(choice)
    delta = openai.Delta(content=step.text or None)
    _send_role(delta, stream.state)
    return openai.ChatStreamChoice(
        index=choice.index,
        delta=delta,
        logprobs=logprobs,
        finish_reason=step.finish_reason,
        stop_reason=step.stop_reason,
        token_ids=choice.token_ids if stream.rules.return_token_ids else None,
        weight_versions=_weight_versions(stream.rules, choice),
    )


def _parsed(
    server: Server, call: Call, prompt_ids: list[int] | None, prompt_tokens: int | None
) -> bytes:
    chunk = decode(chunk_decoder, call.generate, "generate_chunk")
    state = (
        decode(state_decoder, call.stream_state, "stream_state")
        if call.stream_state
        else StreamState()
    )
    known_prompt = _check(server, call, chunk, state, prompt_ids)
    try:
        return _ParsedChunk(server, call, chunk, state, known_prompt).write(prompt_tokens)
    except DerenderError:
        raise
    except Exception as error:
        # Parsers replay what the caller carries; what they choke on is in the state or the chunk.
        raise BadRequest(
            "`stream_state` cannot be replayed: the parser failed on it.", "stream_state"
        ) from error


def _check(
    server: Server,
    call: Call,
    chunk: GenerateChunk,
    state: StreamState,
    prompt_ids: list[int] | None,
) -> list[int]:
    """Everything that can be refused before a parser runs; the prompt, which must be there."""
    if not call.request:
        raise BadRequest(
            "`chat_request` is required where a tool-call or reasoning parser is configured.",
            "chat_request",
        )
    if prompt_ids is None:
        raise BadRequest(
            "`prompt_token_ids` is required where a tool-call or reasoning parser is configured:"
            " the prompt tells whether reasoning is open.",
            "prompt_token_ids",
        )
    check_chunk(chunk, server.limits)
    check_state(state, server.limits)
    delta = sum(len(choice.token_ids or ()) for choice in chunk.choices)
    check_context(len(prompt_ids), len(state.output_token_ids), delta, server.limits)
    return prompt_ids


class _ParsedChunk:
    """The making of one chunk on the parser path."""

    def __init__(
        self,
        server: Server,
        call: Call,
        chunk: GenerateChunk,
        state: StreamState,
        prompt_ids: list[int],
    ) -> None:
        context = server.model.chat_context(call.request)
        self._server = server
        self._call = call
        self._chunk = chunk
        self._state = state
        self._prompt_ids = prompt_ids
        self._rules = context.rules
        self._first = not state.role_sent
        self._identity = identify(state, chunk, call)
        self._live = LiveStream(server, context, prompt_ids)
        self._live.replay(state.output_token_ids, state.output_chunk_lens, ended=not chunk.choices)
        self._live.tools_streamed = state.tools_streamed

    def write(self, prompt_tokens: int | None) -> bytes:
        chunk, state = self._chunk, self._state
        choices = [self._choice(choice) for choice in chunk.choices]
        state.tools_streamed = self._live.tools_streamed
        returned = returned_prompt_ids(chunk, self._prompt_ids, prompt_tokens, self._first)
        usage = chunk_usage(chunk.usage, prompt_tokens, self._reasoning_tokens())
        shown = returned if self._rules.return_token_ids else None
        return _encode(self._call, chunk, choices, usage, shown, state)

    def _choice(self, choice: StreamChoice) -> openai.ChatStreamChoice:
        rules, state = self._rules, self._state
        ids = choice.token_ids or []
        logprobs = None if rules.hide_metadata else _logprobs(self._server, rules, choice, state)
        step = self._live.advance(ids, choice.finish_reason, choice.stop_reason)
        self._carry(step, ids)
        _send_role(step.delta, state)
        shown = rules.return_token_ids and not rules.hide_metadata
        return openai.ChatStreamChoice(
            index=choice.index,
            delta=step.delta,
            logprobs=logprobs,
            finish_reason=step.finish_reason,
            stop_reason=step.stop_reason,
            token_ids=choice.token_ids if shown else None,
            weight_versions=_weight_versions(rules, choice),
        )

    def _carry(self, step: LiveStep, ids: Sequence[int]) -> None:
        """Move the state past the chunk, and settle the IDs of its tool calls."""
        state = self._state
        if ids:
            state.output_token_ids += ids
            state.output_chunk_lens.append(len(ids))
        state.logprob_context_token_ids = context_tail(state.logprob_context_token_ids, ids)
        known = state.last_tool_call_ids
        for call in step.delta.tool_calls or ():
            if call.id is None:
                continue
            if call.index < len(known):
                call.id = known[call.index]
            else:
                call.id = tool_call_id(call.id, self._identity, call.index)
                known.append(call.id)

    def _reasoning_tokens(self) -> int | None:
        """Reasoning tokens of the whole answer, None where this one choice is not all of it."""
        usage = self._chunk.usage
        if not self._server.model.counts_reasoning or usage is None:
            return None
        whole = (usage.completion_tokens or 0) == len(self._live.output_ids)
        return self._live.count_reasoning_tokens() if whole else None


def _encode(
    call: Call,
    chunk: GenerateChunk,
    choices: list[openai.ChatStreamChoice],
    usage: openai.Usage | None,
    prompt_ids: list[int] | None,
    state: StreamState,
) -> bytes:
    answer = openai.ChatStreamAnswer(
        chunk=openai.ChatChunk(
            id=chunk.request_id or call.fallback_id,
            created=call.created,
            model=call.model,
            choices=choices,
            usage=usage,
            prompt_token_ids=prompt_ids,
            metrics=chunk.metrics,
            kv_transfer_params=chunk.kv_transfer_params,
        ),
        stream_state=state,
    )
    return openai.encoder.encode(answer)


def _logprobs(
    server: Server, rules: OutputRules, choice: StreamChoice, state: StreamState
) -> openai.ChatLogprobs | None:
    if choice.logprobs is None:
        return None
    written = server.logprobs.chat(choice.logprobs, rules, state.logprob_context_token_ids)
    return cast(openai.ChatLogprobs, Raw(written))


def _send_role(delta: openai.Delta, state: StreamState) -> None:
    if not state.role_sent:
        delta.role = "assistant"
        state.role_sent = True


def _weight_versions(rules: OutputRules, choice: StreamChoice) -> Raw:
    return choice.weight_versions if rules.return_weight_versions else NOTHING
