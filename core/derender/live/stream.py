"""A live stream: the parser, the decoder and the flags of one choice of one generation.

It is a function of its context (request and prompt) and of the chunks it has taken, so replaying a
carried history builds the same stream, wherever that happens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from core.derender.contexts import StreamContext
from core.derender.live.echoed_state import EchoedState
from core.derender.live.history import History, Mark
from core.formats.sse import to_json
from core.protocol.generate import StreamChoice
from core.protocol.stream_state import Finish, ParsedState
from core.text.choice import Choice, ChoiceParser, ChoiceStep
from core.text.logprobs import LogprobShape
from core.text.model_tools import ModelTools


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
        rules: What the request says of its answer.
        history: Every token taken, by chunk.
        state: The small members of the state last issued.
        echoed: Those as JSON, None before the first.
        last: The last answer, None before the first.
        steps: Calls and replayed chunks that moved the stream; the number of its checkpoint.
        secret: Makes its checkpoints unguessable; empty until one is asked for.
        finish: How the engine ended the choice, None while it runs.
        busy: A call is replaying into it.
    """

    def __init__(self, tools: ModelTools, context: StreamContext, identity: str) -> None:
        """Start a stream that has produced nothing."""
        self.identity = identity
        self.context = context
        self.rules = context.chat.rules
        self.history = History()
        self.state = ParsedState()
        self.echoed: EchoedState | None = None
        self.last: LastAnswer | None = None
        self.steps = 0
        self.secret = ""
        self.finish: Finish | None = None
        self.busy = False
        prompt_ids = context.prompt_ids
        self._parser = ChoiceParser(context.chat.open_stream(prompt_ids), identity)
        text = tools.open_text(self.rules, prompt_ids)
        self._choice = Choice(tools, self.rules, text, LogprobShape.CHAT, self._parser)

    @property
    def tokens(self) -> int:
        """Tokens held: the prompt and the output."""
        return len(self.context.prompt_ids) + len(self.history.ids)

    def resume(self, state: ParsedState) -> None:
        """Go on from the small members a client carries, which go before the replayed ones."""
        self._parser.stream.tools_streamed = state.tools_streamed
        self._parser.call_ids = state.last_tool_call_ids
        self._choice.carry(state.logprob_context_token_ids)

    def take(self, state: ParsedState, part: StreamChoice) -> ChoiceStep:
        """Take one chunk, and move the small members past it."""
        step = self._take(part)
        state.logprob_context_token_ids = self._choice.context
        state.tools_streamed = self._parser.stream.tools_streamed
        state.last_tool_call_ids = self._parser.call_ids
        state.role_sent = True
        if part.finish_reason is not None and self.finish is not None:
            state.finished = self.finish
        return step

    def replay(self, ids: Sequence[int], finish: Finish | None) -> None:
        """Take one chunk of a carried history; only the last one may have ended the choice."""
        self.last = self.echoed = None
        # Checkpoints issued before name another position.
        self.steps += 1
        ended = finish or Finish()
        part = StreamChoice(
            index=0,
            token_ids=list(ids),
            finish_reason=ended.finish_reason,
            stop_reason=ended.stop_reason,
        )
        self._take(part)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Keep other calls away while a history is replayed into the stream."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    def commit(self, state: ParsedState, answer: LastAnswer | None) -> None:
        """Note what was answered: the small members, and the answer where it moved the stream."""
        if answer is not None or self.last is None:
            self.state = state
        if answer is not None:
            self.steps += 1
            self.last = answer

    def issue(self, state: ParsedState) -> bytes:
        """JSON of the state to carry; what echoes it is recognised by its bytes."""
        echoed = EchoedState(to_json(state))
        if state is self.state:
            self.echoed = echoed
        return echoed.write(self.history)

    def count_reasoning_tokens(self) -> int:
        """Reasoning tokens among those taken."""
        return self._parser.stream.count_reasoning_tokens(self.history.ids)

    def _take(self, part: StreamChoice) -> ChoiceStep:
        self.history.append(part.token_ids or ())
        if part.finish_reason is not None:
            self.finish = Finish(
                finish_reason=part.finish_reason,
                stop_reason=part.stop_reason,
                apart=not part.token_ids,
            )
        return self._choice.take(part)
