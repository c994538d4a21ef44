"""Streamed chat with a parser: find the live stream, or rebuild it, and take one chunk.

Whether a stream was found, caught up or rebuilt never shows in the answer.
"""

import re

import xxhash

from core.derender.carried_window import keep_identity, returned_prompt_ids
from core.derender.chat_answers import chat_chunk, chat_logprobs, send_role, weight_versions
from core.derender.live.echoed_state import IssuedState
from core.derender.live.rebuilding import Carried, Rebuilding, cannot_replay, check_room
from core.derender.live.stream import LastAnswer, LiveStep, LiveStream
from core.derender.live.streams import Outcome, Streams
from core.formats.usage import chunk_usage
from core.protocol import openai
from core.protocol.bounds import (
    check_chunk,
    check_window,
    chunk_decoder,
    decode,
    parsed_state_decoder,
)
from core.protocol.calls import DerenderChatChunk
from core.protocol.errors import BadRequest, UnknownCheckpoint
from core.protocol.generate import (
    NO_TOKENS,
    CheckpointState,
    GenerateChunk,
    ParsedState,
    StreamChoice,
)
from core.protocol.ids import tool_call_id
from core.protocol.steps import Steps
from core.text.logprobs import context_tail
from core.text.model_tools import Server

_CHECKPOINT = re.compile(r"([0-9a-f]{16})\.([0-9a-f]{32})\.(\d{1,9})")


def derender_parsed(server: Server, call: DerenderChatChunk, streams: Streams) -> Steps:
    """Answer a streamed chat call with the JSON of a `ChatStreamAnswer`; yields while it replays.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
        UnknownCheckpoint: The call carries a checkpoint of a stream that is not held.
    """
    chunk = decode(chunk_decoder, call.generate, "generate_chunk")
    check_chunk(chunk, server.limits)
    prompt_tokens = server.prompt_tokens(call.prompt_tokens)
    answer = _Answer(server, call, streams, chunk, prompt_tokens)
    if done := answer.from_echo():
        return done
    state = (
        decode(parsed_state_decoder, call.stream_state, "stream_state")
        if call.stream_state
        else ParsedState()
    )
    check_window(state, server.limits)
    if checkpoint := _CHECKPOINT.fullmatch(str(state.checkpoint)):
        return answer.from_checkpoint(*checkpoint.groups())
    return (yield from answer.from_state(state))


class _Answer:
    """The making of one answer."""

    def __init__(
        self,
        server: Server,
        call: DerenderChatChunk,
        streams: Streams,
        chunk: GenerateChunk,
        prompt_tokens: int | None,
    ) -> None:
        self._server = server
        self._call = call
        self._streams = streams
        self._chunk = chunk
        self._prompt_tokens = prompt_tokens
        self._small = call.checkpoints

    def from_checkpoint(self, identity: str, secret: str, step: str) -> bytes:
        """Answer a call that carries a checkpoint in place of a state."""
        live = self._streams.find_by_checkpoint(identity, secret)
        if live is None or live.busy:
            raise _unknown_checkpoint()
        self._small = True
        digest = self._digest(f"{secret}.{step}".encode())
        last = live.last
        if int(step) == live.steps - 1 and last is not None and last.call == digest:
            return self._repeat(live, last)
        if int(step) != live.steps or (live.finish and self._chunk.choices):
            raise _unknown_checkpoint()
        self._check_context(live, len(live.history.ids))
        self._streams.count(Outcome.HIT)
        return self._advance(live, live.state, digest)

    def from_echo(self) -> bytes | None:
        """Answer a call that carries, to the letter, the state its live stream last issued.

        None where it does not, or is to be refused: reading the state then says why.
        """
        live = self._echoed()
        if live is None or live.issued is None:
            return None
        self._check_context(live, len(live.history.ids))
        self._streams.count(Outcome.HIT)
        return self._advance(live, live.state, self._digest(live.issued.small))

    def _echoed(self) -> LiveStream | None:
        carried = self._call.stream_state
        if not carried:
            return None
        try:
            context = self._server.contexts.resolve(self._call)
        except BadRequest:
            return None
        live = self._streams.find(self._call.stream, context)
        if live is None or live.busy or live.issued is None:
            return None
        if live.finish != Carried(live.state, b"", b"").finish(self._chunk):
            return None
        return live if live.issued.equals(carried, live.history) else None

    def from_state(self, state: ParsedState) -> Steps:
        """Answer a call that carries its whole state."""
        carried = Carried(state, bytes(state.output_token_ids), bytes(state.output_chunk_lens))
        state.output_token_ids = state.output_chunk_lens = NO_TOKENS
        context = self._server.contexts.resolve(self._call)
        identity = self._call.stream
        keep_identity(state, identity)
        digest = self._digest(openai.encoder.encode(state))
        live = self._streams.find(identity, context)
        while live is not None and live.busy:
            yield True
            live = self._streams.find(identity, context)
        if live is not None:
            if done := self._from_live(live, carried, digest):
                return done
            carried = carried.canonical()
            if done := self._from_live(live, carried, digest):
                return done
        rebuilding = Rebuilding(self._server, self._streams, self._chunk, carried.canonical())
        live = yield from rebuilding.run(live, context, identity)
        return self._advance(live, state, digest)

    def _from_live(self, live: LiveStream, carried: Carried, digest: bytes) -> bytes | None:
        """The answer where the live stream is where the carried state is, or one call further."""
        if self._is_repeated(live, carried, digest) and live.last is not None:
            return self._repeat(live, live.last)
        if not self._continues(live, carried):
            return None
        self._check_context(live, len(live.history.ids))
        self._streams.count(Outcome.HIT)
        return self._advance(live, carried.state, digest)

    def _is_repeated(self, live: LiveStream, carried: Carried, digest: bytes) -> bool:
        last = live.last
        return (
            last is not None
            and last.call == digest
            and live.history.equals(carried.ids, carried.lens, last.before)
        )

    def _continues(self, live: LiveStream, carried: Carried) -> bool:
        """Whether the carried state is the one the live stream last issued."""
        if live.finish != carried.finish(self._chunk):
            return False
        return live.history.equals(carried.ids, carried.lens)

    def _check_context(self, live: LiveStream, history: int) -> None:
        check_room(self._server, live.context.prompt_ids, history, self._chunk)

    def _advance(self, live: LiveStream, state: ParsedState, digest: bytes) -> bytes:
        """Take the chunk and write the answer; a parser that fails takes its stream with it."""
        before = live.history.mark()
        live.tools_streamed = state.tools_streamed
        try:
            written = self._write_chunk(live, state)
        except Exception as error:
            self._streams.drop(live)
            raise cannot_replay() from error
        if self._chunk.choices or live.last is None:
            live.state = state
        if self._chunk.choices:
            live.steps += 1
            live.last = LastAnswer(digest, before, written)
        self._streams.keep(live)
        return self._write(live, written, state)

    def _repeat(self, live: LiveStream, last: LastAnswer) -> bytes:
        self._streams.count(Outcome.RETRY)
        self._streams.keep(live)
        return self._write(live, last.chunk, live.state)

    def _write(self, live: LiveStream, chunk: bytes, state: ParsedState) -> bytes:
        return b'{"chunk":%b,"stream_state":%b}' % (chunk, self._write_state(live, state))

    def _write_state(self, live: LiveStream, state: ParsedState) -> bytes:
        if self._small and live.identity:
            live.secret = live.secret or self._streams.new_secret()
            self._streams.keep(live)
        if self._small and live.secret:
            checkpoint = f"{live.identity}.{live.secret}.{live.steps}"
            return openai.encoder.encode(CheckpointState(checkpoint=checkpoint))
        issued = IssuedState(openai.encoder.encode(state))
        if state is live.state:
            live.issued = issued
        return issued.write(live.history)

    def _write_chunk(self, live: LiveStream, state: ParsedState) -> bytes:
        chunk, call = self._chunk, self._call
        first = not state.role_sent
        state.created = state.created if isinstance(state.created, int) else call.created
        choices = [self._choice(live, state, choice) for choice in chunk.choices]
        returned = (
            returned_prompt_ids(chunk, live.context.prompt_ids, self._prompt_tokens, first)
            if live.rules.return_token_ids
            else None
        )
        usage = chunk_usage(chunk.usage, self._prompt_tokens, self._reasoning_tokens(live))
        return openai.encoder.encode(
            chat_chunk(call, chunk, choices, usage, returned, state.created)
        )

    def _choice(
        self, live: LiveStream, state: ParsedState, choice: StreamChoice
    ) -> openai.ChatStreamChoice:
        rules = live.rules
        ids = choice.token_ids or []
        logprobs = (
            None
            if rules.hide_metadata
            else chat_logprobs(self._server, rules, choice, state.logprob_context_token_ids)
        )
        step = live.advance(ids, choice.finish_reason, choice.stop_reason)
        self._carry(live, state, step, choice)
        state.role_sent = send_role(step.delta, state.role_sent)
        shown = rules.return_token_ids and not rules.hide_metadata
        return openai.ChatStreamChoice(
            index=choice.index,
            delta=step.delta,
            logprobs=logprobs,
            finish_reason=step.finish_reason,
            stop_reason=step.stop_reason,
            token_ids=choice.token_ids if shown else None,
            weight_versions=weight_versions(rules, choice),
        )

    def _carry(
        self, live: LiveStream, state: ParsedState, step: LiveStep, choice: StreamChoice
    ) -> None:
        """Move the small members past the chunk, and settle the IDs of its tool calls."""
        state.logprob_context_token_ids = context_tail(
            state.logprob_context_token_ids, choice.token_ids or ()
        )
        state.tools_streamed = live.tools_streamed
        if choice.finish_reason is not None:
            state.finished = live.finish
        known = state.last_tool_call_ids
        for call in step.delta.tool_calls or ():
            if call.id is None:
                continue
            if call.index < len(known):
                call.id = known[call.index]
            else:
                call.id = tool_call_id(call.id, live.identity, call.index)
                known.append(call.id)

    def _reasoning_tokens(self, live: LiveStream) -> int | None:
        """Reasoning tokens of the whole answer, None where this one choice is not all of it."""
        usage = self._chunk.usage
        if not self._server.model.counts_reasoning or usage is None:
            return None
        whole = (usage.completion_tokens or 0) == len(live.history.ids)
        return live.count_reasoning_tokens() if whole else None

    def _digest(self, position: bytes) -> bytes:
        """Digest of all that the answer depends on besides context and history."""
        call = self._call
        parts = (position, call.generate, call.prompt_tokens, call.model.encode())
        return xxhash.xxh3_128_digest(b"\0".join(parts))


def _unknown_checkpoint() -> UnknownCheckpoint:
    return UnknownCheckpoint(
        "`stream_state.checkpoint` is not known here: send the full state, with chat_request and"
        " prompt_token_ids.",
        "stream_state.checkpoint",
    )
