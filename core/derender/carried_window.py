"""Streams without a parser: the carried window is all there is, O(1) per chunk."""

from core.protocol.generate import StreamChoice
from core.protocol.rules import OutputRules
from core.protocol.stream_state import ParsedState, StopWindow, StreamState
from core.text.choice import Choice, ChoiceStep
from core.text.decoding import WindowTextStream
from core.text.logprobs import LogprobShape
from core.text.model_tools import ModelTools


class CarriedWindow:
    """One choice, resumed from its carried state, which moves with it.

    Attributes:
        state: The state to carry into the next call.
        rules: What the caller's request says of the output.
    """

    def __init__(
        self, tools: ModelTools, rules: OutputRules, state: StreamState, shape: LogprobShape
    ) -> None:
        """Resume from a state that passed its checks."""
        self.state = state
        self.rules = rules
        self._text = WindowTextStream(
            tools.tokens, state, rules.skip_special_tokens, tools.keeps_spaces(rules)
        )
        self._choice = Choice(tools, rules, self._text, shape)
        window = state.stop_window if isinstance(state.stop_window, StopWindow) else None
        context = state.logprob_context_token_ids
        self._choice.carry(context, state.logprob_text_offset, window)

    def take(self, part: StreamChoice) -> ChoiceStep:
        """Take one chunk, and move the state past it."""
        choice, state = self._choice, self.state
        step = choice.take(part)
        self._text.save(state)
        state.logprob_context_token_ids = choice.context
        state.logprob_text_offset = choice.text_offset
        if choice.stop_window is not None:
            state.stop_window = choice.stop_window
        return step


def keep_identity(state: StreamState | ParsedState, stream: str) -> None:
    """Have the state carry the stream's identity; a first chunk without a choice leaves it open."""
    if stream and not (isinstance(state.checkpoint, str) and state.checkpoint):
        state.checkpoint = stream


def keep_creation(state: StreamState | ParsedState, now: int) -> int:
    """Have the state carry the Unix time of the stream's first chunk; that time."""
    if not isinstance(state.created, int):
        state.created = now
    return state.created
