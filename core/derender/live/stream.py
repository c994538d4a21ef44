"""A live stream: the parser, the decoder and the flags of one choice of one generation.

It is a function of its context (request and prompt) and of the chunks it has taken, so replaying a
carried history builds the same stream, wherever that happens.
"""

from collections.abc import Sequence
from typing import NamedTuple

from core.derender.contexts import StreamContext
from core.derender.live.echoed_state import IssuedState
from core.derender.live.history import History, Mark
from core.protocol.generate import Finish, ParsedState, StopWindow
from core.protocol.openai import Delta
from core.text.decoding import open_stream
from core.text.model_tools import Server
from core.text.stopping import StopMatcher, split_stop_token


class LiveStep(NamedTuple):
    """What one chunk adds to the message."""

    delta: Delta
    finish_reason: str | None
    stop_reason: int | str | None


class LastAnswer(NamedTuple):
    """The last call that moved a stream, for a client whose answer was lost."""

    call: bytes
    """Digest of everything the answer depends on besides the history."""
    before: Mark
    """Where the history stood."""
    chunk: bytes
    """JSON of the answer's chunk."""


class LiveStream:
    """One choice with a parser. O(output) in size; a chunk costs O(chunk) plus the parser's step.

    Attributes:
        identity: The `stream_id` of the choice.
        context: Prompt and request.
        history: Every token taken, by chunk.
        state: The small members of the state last issued.
        issued: Those as JSON, None before the first.
        last: The last answer, None before the first.
        steps: Calls and replayed chunks that moved the stream; the number of its checkpoint.
        secret: Makes its checkpoints unguessable; empty until one is asked for.
        finish: How the engine ended the choice, None while it runs.
        busy: A call is replaying into it.
    """

    def __init__(self, server: Server, context: StreamContext, identity: str) -> None:
        """Start a stream that has produced nothing."""
        self.identity = identity
        self.context = context
        self.rules = context.chat.rules
        self.history = History()
        self.state = ParsedState()
        self.issued: IssuedState | None = None
        self.last: LastAnswer | None = None
        self.steps = 0
        self.secret = ""
        self.finish: Finish | None = None
        self.busy = False
        self._ends = server.model.ends
        self._parser = context.chat.open_stream()
        self._text = open_stream(
            server.tokens,
            context.prompt_ids,
            self.rules.skip_special_tokens,
            server.keeps_spaces(self.rules),
        )
        self._matcher = StopMatcher(self.rules, StopWindow()) if self.rules.stop else None

    @property
    def tokens(self) -> int:
        """Tokens held: the prompt and the output."""
        return len(self.context.prompt_ids) + len(self.history.ids)

    @property
    def tools_streamed(self) -> bool:
        """A tool call was part of a delta; the carried flag goes before the replayed one."""
        return self._parser.tools_streamed

    @tools_streamed.setter
    def tools_streamed(self, value: bool) -> None:
        self._parser.tools_streamed = value

    def advance(
        self,
        ids: Sequence[int],
        finish_reason: str | None,
        stop_reason: int | str | None = None,
    ) -> LiveStep:
        """Take one chunk.

        Args:
            ids: Its tokens; none with a finish reason flushes what the parser holds back.
            finish_reason: The engine's, null while the choice runs.
            stop_reason: The engine's.
        """
        self.history.append(ids)
        if finish_reason is not None:
            self.finish = Finish(
                finish_reason=finish_reason, stop_reason=stop_reason, apart=not ids
            )
        if self._matcher is not None and self._matcher.stopped:
            return LiveStep(Delta(), None, None)
        text_ids, stop_reason = split_stop_token(
            ids, finish_reason, stop_reason, self.rules, self._ends
        )
        if not ids and finish_reason is None:
            return LiveStep(Delta(), None, stop_reason)
        if self._matcher is None:
            return self._step(self._text.feed(text_ids), ids, finish_reason, stop_reason)
        pieces = [self._text.feed([token_id]) for token_id in text_ids]
        found = self._matcher.feed(pieces, len(ids), finished=finish_reason is not None)
        if found.matched is None:
            return self._step(found.text, ids, finish_reason, stop_reason)
        return self._step(found.text, ids[: found.kept], "stop", found.matched)

    def replay(self, ids: Sequence[int], finish: Finish | None) -> None:
        """Take one chunk of a carried history; only the last one may have ended the choice."""
        self.last = self.issued = None
        # Checkpoints issued before name another position.
        self.steps += 1
        if finish is None:
            self.advance(ids, None)
        else:
            self.advance(ids, finish.finish_reason, finish.stop_reason)

    def count_reasoning_tokens(self) -> int:
        """Reasoning tokens among those taken."""
        return self._parser.count_reasoning_tokens(self.history.ids)

    def _step(
        self,
        text: str,
        ids: Sequence[int],
        finish_reason: str | None,
        stop_reason: int | str | None,
    ) -> LiveStep:
        delta, reason = self._parser.step(text, ids, finish_reason, self.context.prompt_ids)
        return LiveStep(delta, reason, stop_reason)
