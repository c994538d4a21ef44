"""Finds the live stream a call goes on with: by checkpoint, by the state it echoes, or rebuilt."""

import re
from collections.abc import Generator
from typing import NamedTuple

import xxhash

from core.derender.carried_window import keep_identity
from core.derender.contexts import ContextStore
from core.derender.live.rebuilding import Carried, Rebuilding
from core.derender.live.stream import LiveStream
from core.derender.live.streams import Outcome, Streams
from core.formats.sse import to_json
from core.protocol.bounds import check_context, check_window, parsed_state_decoder
from core.protocol.calls import DerenderChatChunk
from core.protocol.errors import BadRequest, UnknownCheckpoint
from core.protocol.generate import GenerateChunk
from core.protocol.members import decode
from core.protocol.stream_state import NO_TOKENS, ParsedState
from core.text.model_tools import ModelTools

_CHECKPOINT = re.compile(r"([0-9a-f]{16})\.([0-9a-f]{32})\.(\d{1,9})")


class Position(NamedTuple):
    """Where a call goes on."""

    live: LiveStream
    """The stream, where the carried history ends; one call further where that is repeated."""
    state: ParsedState
    """The small members carried; the answer moves them."""
    digest: bytes
    """Of all that the answer depends on besides context and history."""
    repeated: bool = False
    """The call was answered before: the answer is the stream's last one."""
    by_checkpoint: bool = False
    """The caller carries a checkpoint, and gets one."""


class Lookup:
    """The search for the stream of one call."""

    def __init__(
        self,
        tools: ModelTools,
        contexts: ContextStore,
        streams: Streams,
        call: DerenderChatChunk,
        chunk: GenerateChunk,
    ) -> None:
        """Describe the call; its chunk passed its checks."""
        self._tools = tools
        self._contexts = contexts
        self._streams = streams
        self._call = call
        self._chunk = chunk

    def find(self) -> Generator[bool, None, Position]:
        """The position; yields while a stream is rebuilt.

        Raises:
            BadRequest: The call breaks the protocol or a bound.
            UnknownCheckpoint: It carries a checkpoint of a stream that is not held.
        """
        if echoed := self._by_echo():
            return echoed
        carried = self._call.stream_state
        state = decode(parsed_state_decoder, carried, "stream_state") if carried else ParsedState()
        check_window(state, self._tools.limits)
        if checkpoint := _CHECKPOINT.fullmatch(str(state.checkpoint)):
            return self._by_checkpoint(*checkpoint.groups())
        return (yield from self._by_state(state))

    def _by_checkpoint(self, identity: str, secret: str, step: str) -> Position:
        live = self._streams.find_by_checkpoint(identity, secret)
        if live is None or live.busy:
            raise _unknown_checkpoint()
        digest = self._digest(f"{secret}.{step}".encode())
        last = live.last
        if int(step) == live.steps - 1 and last is not None and last.call == digest:
            return self._repeated(Position(live, live.state, digest, by_checkpoint=True))
        if int(step) != live.steps or (live.finish and self._chunk.choices):
            raise _unknown_checkpoint()
        return self._hit(Position(live, live.state, digest, by_checkpoint=True))

    def _by_echo(self) -> Position | None:
        """Where the call carries, to the letter, the state its live stream last issued.

        None where it does not, or is to be refused: reading the state then says why.
        """
        carried = self._call.stream_state
        if not carried:
            return None
        try:
            context = self._contexts.resolve(self._call)
        except BadRequest:
            return None
        live = self._streams.find(self._call.stream, context)
        if live is None or live.busy or live.echoed is None:
            return None
        if live.finish != Carried(live.state, b"", b"").finish(self._chunk):
            return None
        if not live.echoed.equals(carried, live.history):
            return None
        return self._hit(Position(live, live.state, self._digest(live.echoed.small)))

    def _by_state(self, state: ParsedState) -> Generator[bool, None, Position]:
        carried = Carried(state, bytes(state.output_token_ids), bytes(state.output_chunk_lens))
        state.output_token_ids = state.output_chunk_lens = NO_TOKENS
        context = self._contexts.resolve(self._call)
        identity = self._call.stream
        keep_identity(state, identity)
        digest = self._digest(to_json(state))
        live = self._streams.find(identity, context)
        while live is not None and live.busy:
            yield True
            live = self._streams.find(identity, context)
        if live is not None:
            if found := self._at(live, carried, digest):
                return found
            carried = carried.canonical()
            if found := self._at(live, carried, digest):
                return found
        rebuilding = Rebuilding(self._tools, self._streams, self._chunk, carried.canonical())
        live = yield from rebuilding.run(live, context, identity)
        return Position(live, state, digest)

    def _at(self, live: LiveStream, carried: Carried, digest: bytes) -> Position | None:
        """Where the live stream is where the carried state is, or one call further."""
        position = Position(live, carried.state, digest)
        last, history = live.last, live.history
        was_last = last is not None and last.call == digest
        if was_last and history.equals(carried.ids, carried.lens, last.before if last else None):
            return self._repeated(position)
        if live.finish != carried.finish(self._chunk):
            return None
        return self._hit(position) if history.equals(carried.ids, carried.lens) else None

    def _hit(self, position: Position) -> Position:
        live = position.live
        prompt, history = len(live.context.prompt_ids), len(live.history.ids)
        check_context(prompt, history, self._chunk, self._tools.limits)
        self._streams.count(Outcome.HIT)
        return position

    def _repeated(self, position: Position) -> Position:
        self._streams.count(Outcome.RETRY)
        return position._replace(repeated=True)

    def _digest(self, position: bytes) -> bytes:
        call = self._call
        parts = (position, call.generate, call.prompt_tokens, call.model.encode())
        return xxhash.xxh3_128_digest(b"\0".join(parts))


def _unknown_checkpoint() -> UnknownCheckpoint:
    return UnknownCheckpoint(
        "`stream_state.checkpoint` is not known here: send the full state, with chat_request and"
        " prompt_token_ids.",
        "stream_state.checkpoint",
    )
