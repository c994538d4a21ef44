"""Streams without a parser: the carried window is all there is, O(1) per chunk."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from core.protocol.bounds import (
    check_chunk,
    check_context,
    check_state,
    chunk_decoder,
    decode,
    state_decoder,
)
from core.protocol.calls import DerenderChatChunk, DerenderCompletionChunk
from core.protocol.generate import GenerateChunk, ParsedState, StopWindow, StreamChoice, StreamState
from core.protocol.rules import OutputRules
from core.text.decoding import WindowTextStream, seed_state
from core.text.logprobs import context_tail
from core.text.model_tools import Server
from core.text.stopping import StopMatcher, split_stop_token


class PlainStep(NamedTuple):
    """What one chunk adds to the text."""

    text: str
    finish_reason: str | None
    stop_reason: int | str | None


class PlainStream:
    """One choice, resumed from its carried state.

    Attributes:
        state: The state to carry into the next call; advanced in place.
        rules: What the caller's request says of the output.
        first: No chunk came before.
        created: Unix time of the stream.
    """

    def __init__(
        self, server: Server, rules: OutputRules, state: StreamState, first: bool, created: int
    ) -> None:
        """Resume from a state that passed its checks."""
        self.server = server
        self.rules = rules
        self.state = state
        self.first = first
        self.created = created

    def advance(self, choice: StreamChoice) -> PlainStep:
        """Decode one chunk and move the state past it."""
        ids = choice.token_ids or []
        text_ids, stop_reason = split_stop_token(
            ids, choice.finish_reason, choice.stop_reason, self.rules, self.server.model.ends
        )
        if self.rules.stop:
            step = self._advance_to_stop(choice, text_ids, stop_reason)
        else:
            step = PlainStep(self._window(text_ids), choice.finish_reason, stop_reason)
        state = self.state
        state.logprob_context_token_ids = context_tail(state.logprob_context_token_ids, ids)
        return step

    def _window(self, ids: Sequence[int]) -> str:
        stream = self._open()
        text = stream.feed(ids)
        stream.save(self.state)
        return text

    def _open(self) -> WindowTextStream:
        return WindowTextStream(
            self.server.tokens,
            self.state,
            self.rules.skip_special_tokens,
            self.server.keeps_spaces(self.rules),
        )

    def _advance_to_stop(
        self, choice: StreamChoice, text_ids: Sequence[int], stop_reason: int | str | None
    ) -> PlainStep:
        carried = self.state.stop_window
        window = carried if isinstance(carried, StopWindow) else StopWindow()
        if window.stopped:
            # The finish reason went out with the chunk that matched.
            window.tokens += len(choice.token_ids or ())
            return PlainStep("", None, None)
        stream = self._open()
        pieces = [stream.feed([token_id]) for token_id in text_ids]
        stream.save(self.state)
        matcher = StopMatcher(self.rules, window)
        step = matcher.feed(
            pieces, len(choice.token_ids or ()), finished=choice.finish_reason is not None
        )
        self.state.stop_window = matcher.window
        if step.matched is None:
            return PlainStep(step.text, choice.finish_reason, stop_reason)
        return PlainStep(step.text, "stop", step.matched)


def resume(
    server: Server,
    call: DerenderChatChunk | DerenderCompletionChunk,
    prompt_ids: list[int] | None,
    rules_of: Callable[[], OutputRules],
) -> tuple[PlainStream, GenerateChunk]:
    """Check a streamed call and resume its stream.

    Args:
        server: The model.
        call: A streamed call for which no parser is configured.
        prompt_ids: The caller's prompt IDs; they seed the first chunk, before the engine's.
        rules_of: Reads the request; called after the bounds are checked.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """
    chunk = decode(chunk_decoder, call.generate, "generate_chunk")
    check_chunk(chunk, server.limits)
    state = decode(state_decoder, call.stream_state, "stream_state") if call.stream_state else None
    if state is not None:
        check_state(state, server.limits)
    delta = sum(len(choice.token_ids or ()) for choice in chunk.choices)
    history = len(state.output_token_ids) if state is not None else 0
    check_context(len(prompt_ids or ()), history, delta, server.limits)
    rules = rules_of()
    first = state is None
    if state is None:
        seed = prompt_ids if prompt_ids is not None else chunk.prompt_token_ids
        state = seed_state(server.tokens, seed, rules.skip_special_tokens)
    keep_identity(state, call.stream)
    state.created = created = state.created if isinstance(state.created, int) else call.created
    return PlainStream(server, rules, state, first, created), chunk


def returned_prompt_ids(
    chunk: GenerateChunk, prompt_ids: list[int] | None, prompt_tokens: int | None, first: bool
) -> list[int] | None:
    """The prompt IDs to return: the engine's; on the first chunk also the caller's, if whole."""
    whole = prompt_ids is not None and len(prompt_ids) == prompt_tokens
    return (
        prompt_ids if first and whole and chunk.prompt_token_ids is None else chunk.prompt_token_ids
    )


def keep_identity(state: StreamState | ParsedState, stream: str) -> None:
    """Have the state carry the stream's identity; a first chunk without a choice leaves it open."""
    if stream and not (isinstance(state.checkpoint, str) and state.checkpoint):
        state.checkpoint = stream
