"""Brings a live stream to where a carried history ends, by replaying what it lacks.

Rebuilding yields after every chunk, so that whoever runs it can serve others in between.
"""

from collections.abc import Generator
from typing import NamedTuple

from core.derender.contexts import StreamContext
from core.derender.live.history import Tail, canonical
from core.derender.live.stream import LiveStream
from core.derender.live.streams import Cause, Outcome, Streams
from core.protocol.bounds import check_context, check_history, ids_decoder, lens_decoder
from core.protocol.errors import BadRequest
from core.protocol.generate import GenerateChunk
from core.protocol.members import decode
from core.protocol.stream_state import Finish, ParsedState
from core.text.model_tools import ModelTools


class Carried(NamedTuple):
    """A call's state, its history as JSON beside the small members."""

    state: ParsedState
    ids: bytes
    lens: bytes

    def canonical(self) -> "Carried":
        """The same with its history as we write it."""
        ids = canonical(self.ids, ids_decoder, "stream_state.output_token_ids")
        lens = canonical(self.lens, lens_decoder, "stream_state.output_chunk_lens")
        return Carried(self.state, ids, lens)

    def finish(self, chunk: GenerateChunk) -> Finish | None:
        """How the choice ended, where a call brings nothing more for it."""
        finished = self.state.finished
        return finished if isinstance(finished, Finish) and not chunk.choices else None


class Rebuilding:
    """Brings a live stream to where the carried history ends."""

    def __init__(
        self, tools: ModelTools, streams: Streams, chunk: GenerateChunk, carried: Carried
    ) -> None:
        """Describe the call.

        Args:
            tools: The model.
            streams: Keeps the stream while it is rebuilt.
            chunk: What the call brings.
            carried: Its state, the history as we write it.
        """
        self._tools = tools
        self._streams = streams
        self._chunk = chunk
        self._carried = carried
        self._finish = carried.finish(chunk)

    def run(
        self, live: LiveStream | None, context: StreamContext, identity: str
    ) -> Generator[bool, None, LiveStream]:
        """Catch up, or start over, and replay what is missing; the stream at the history's end.

        Args:
            live: The stream held, None where there is none.
            context: Prompt and request.
            identity: The `stream_id` of the choice.

        Raises:
            BadRequest: The history breaks a bound, or the parser fails on it.
        """
        missing = self._missing(live)
        tail = self._whole() if missing is None else missing
        check_history(tail.ids, tail.lens, self._tools.limits)
        held = 0 if live is None or missing is None else len(live.history.ids)
        prompt, history = len(context.prompt_ids), held + len(tail.ids)
        check_context(prompt, history, self._chunk, self._tools.limits)
        outcome, cause = Outcome.CATCH_UP, None
        if live is None or missing is None:
            outcome = Outcome.REPLAY if tail.ids else Outcome.FIRST
            cause = self._cause(live, context, identity) if tail.ids else None
            if live is not None:
                self._streams.drop(live)
            live = LiveStream(self._tools, context, identity)
        self._streams.count(outcome, cause, len(tail.ids))
        yield from self._replay(live, tail)
        return live

    def _missing(self, live: LiveStream | None) -> Tail | None:
        """What a live stream lacks; None where it cannot be continued."""
        if live is None or live.finish:
            return None
        try:
            tail = live.history.tail_of(self._carried.ids, self._carried.lens)
            if tail is not None:
                check_history(tail.ids, tail.lens, self._tools.limits)
        except BadRequest:
            # Refused below by its place in the whole, so that the answer is the replayed one.
            return None
        if tail and len(live.history.ids) + len(tail.ids) > self._tools.limits.max_model_len:
            return None
        # The end belongs to the last chunk, so a stream that took it without cannot be mended.
        return None if self._joined and not (tail and tail.lens) else tail

    @property
    def _joined(self) -> Finish | None:
        """The end, where it came with the last tokens."""
        return self._finish if self._finish and not self._finish.apart else None

    def _cause(self, live: LiveStream | None, context: StreamContext, identity: str) -> Cause:
        return Cause.BRANCHED if live else self._streams.cause(identity, context)

    def _whole(self) -> Tail:
        return Tail(
            decode(ids_decoder, self._carried.ids, "stream_state.output_token_ids"),
            decode(lens_decoder, self._carried.lens, "stream_state.output_chunk_lens"),
        )

    def _replay(self, live: LiveStream, tail: Tail) -> Generator[bool, None, None]:
        """Take the missing chunks; what was taken stays valid if nobody waits any more."""
        self._streams.keep(live)
        start, last = 0, len(tail.lens) - 1
        try:
            with live.replaying():
                for i, size in enumerate(tail.lens):
                    live.replay(tail.ids[start : start + size], self._joined if i == last else None)
                    start += size
                    yield False
                if self._finish and self._finish.apart:
                    live.replay((), self._finish)
        except Exception as error:
            self._streams.drop(live)
            raise cannot_replay() from error


def cannot_replay() -> BadRequest:
    """The refusal where a parser fails on what a caller carries or sends."""
    # Parsers replay what the caller carries; what they choke on is in the state or the chunk.
    return BadRequest("`stream_state` cannot be replayed: the parser failed on it.", "stream_state")
