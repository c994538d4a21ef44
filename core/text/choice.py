"""The one step of a choice: tokens into text, a parser's delta, logprobs, and an end.

Whoever has a choice to answer, in one piece or by chunks, whole or resumed from what a client
carries, takes it through here, so that all answer alike.
"""

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from core.protocol.generate import NOTHING, StreamChoice
from core.protocol.ids import tool_call_id
from core.protocol.openai import Delta
from core.protocol.rules import OutputRules
from core.protocol.stream_state import StopWindow
from core.text.decoding import TextStream, decode_all
from core.text.logprobs import LogprobShape, context_tail
from core.text.model_tools import ModelTools
from core.text.stopping import StopMatcher, split_stop_token
from core.vllm_adapter.parsing import ParserStream


class ChoiceStep(NamedTuple):
    """What one chunk adds to a choice."""

    text: str
    """What its tokens settle, up to a stop string."""
    part: StreamChoice
    """The engine's words for it, as far as they belong to the answer: where a stop string matched,
    tokens and logprobs end with the one that completed it. Weight versions are left out there: an
    engine that was stopped early sends none."""
    finish_reason: str | None
    """The parser's where there is one."""
    stop_reason: int | str | None
    delta: Delta | None
    """What a parser makes of the text; None without one, or where it waits for more."""
    logprobs: Any
    """`Raw` JSON of the struct that the choice's shape names; None where there are none to show."""
    begun: bool
    """Tokens came before this chunk."""
    cut: bool = False
    """The choice has ended here at a stop string, of which the engine may know nothing."""

    @property
    def ids(self) -> list[int]:
        """The tokens that belong to the answer."""
        return self.part.token_ids or []

    @property
    def is_nothing(self) -> bool:
        """Neither text nor tokens nor an end."""
        return not (self.text or self.part.token_ids) and self.finish_reason is None


class ChoiceParser:
    """A parser, and the IDs of the tool calls it finds."""

    def __init__(self, parser: ParserStream, stream: str) -> None:
        """Begin with no call.

        Args:
            parser: Has seen no output.
            stream: The `stream_id` of the choice; IDs are derived from it.
        """
        self.stream = parser
        self.call_ids: list[str] = []
        """IDs of the calls so far, by index; what a client carries goes before what is derived."""
        self._identity = stream

    def step(
        self, text: str, ids: Sequence[int], finish_reason: str | None
    ) -> tuple[Delta | None, str | None]:
        """Parse one chunk; the delta, None where the parser waits, and the finish reason."""
        delta, reason = self.stream.step(text, ids, finish_reason)
        if delta is not None and delta.tool_calls:
            for call in delta.tool_calls:
                if isinstance(call.id, str):
                    call.id = self._call_id(call.id, call.index)
        return delta, reason

    def _call_id(self, drawn: str, index: int) -> str:
        """The ID of a call, the same wherever and however often it is parsed."""
        if index < len(self.call_ids):
            return self.call_ids[index]
        derived = tool_call_id(drawn, self._identity, index)
        self.call_ids.append(derived)
        return derived


class Choice:
    """One choice as far as it has come. O(longest stop string), beside what its parts keep.

    Attributes:
        tokens: Tokens taken that belong to the answer.
        finished: The choice has ended; what the engine still sends belongs to no answer.
        cut: It has ended at a stop string, of which the engine may know nothing.
        context: The last tokens taken, for the texts of logprobs.
        text_offset: Characters of all logprob tokens so far; counted in completions alone.
        ids: The tokens taken, where they are kept.
    """

    def __init__(
        self,
        tools: ModelTools,
        rules: OutputRules,
        text: TextStream,
        shape: LogprobShape,
        parser: ChoiceParser | None = None,
        *,
        keep_ids: bool = False,
    ) -> None:
        """Begin, or resume from what `carry` sets.

        Args:
            tools: The model.
            rules: What the request says of its answer.
            text: Decodes.
            shape: How logprobs are written.
            parser: Splits the text; None leaves it whole.
            keep_ids: Keep the tokens taken, O(output).
        """
        self.tokens = 0
        self.finished = False
        self.cut = False
        self.context: list[int] = []
        self.text_offset = 0
        self.ids = array("q") if keep_ids else None
        self.parser = parser
        self._tools = tools
        self._rules = rules
        self._text = text
        self._shape = shape
        self._matcher = StopMatcher(rules, StopWindow()) if rules.stop else None

    def carry(
        self, context: list[int], text_offset: int = 0, window: StopWindow | None = None
    ) -> None:
        """Resume with what a client carries of the choice."""
        self.context, self.text_offset = context, text_offset
        if self._matcher is not None and window is not None:
            self._matcher.window = window

    @property
    def stop_window(self) -> StopWindow | None:
        """The text held back; None where no stop string is looked for."""
        return None if self._matcher is None else self._matcher.window

    def take(self, part: StreamChoice) -> ChoiceStep:
        """Take one chunk. The argument stays as it is."""
        if self._matcher is not None and self._matcher.stopped:
            return self._after_the_end(part)
        step = self._decode(part)
        logprobs = self._write_logprobs(step)
        delta, reason = self._parse(step)
        ids = step.ids
        self.context = context_tail(self.context, ids)
        self.tokens += len(ids)
        if self.ids is not None:
            self.ids.extend(ids)
        self.cut = step.cut
        self.finished = reason is not None
        text, part, _, stop_reason, _, _, begun, cut = step
        return ChoiceStep(text, part, reason, stop_reason, delta, logprobs, begun, cut)

    def replay(self, part: StreamChoice) -> ChoiceStep:
        """Take a chunk that was answered before, and whose logprobs nobody has any more."""
        context, offset = self.context, self.text_offset
        step = self.take(part)
        if self._shape is LogprobShape.COMPLETION:
            self.text_offset = offset
            for token_id in step.ids:
                shown = self._tools.logprobs.shown(token_id, self._rules, context)
                self.text_offset += len(shown)
                context = context_tail(context, [token_id])
        return step

    def count_reasoning_tokens(self) -> int:
        """Reasoning tokens among those taken, where they are kept and a parser knows."""
        if self.parser is None or not self.ids:
            return 0
        return self.parser.stream.count_reasoning_tokens(self.ids)

    def _decode(self, part: StreamChoice) -> ChoiceStep:
        ids = part.token_ids or []
        text_ids, stop_reason = split_stop_token(
            ids, part.finish_reason, part.stop_reason, self._rules, self._tools.model.ends
        )
        begun = self.tokens > 0
        if self._matcher is None:
            text = self._text.feed(text_ids)
            return ChoiceStep(text, part, part.finish_reason, stop_reason, None, None, begun)
        pieces = [self._text.feed([token_id]) for token_id in text_ids]
        finished = part.finish_reason is not None
        found = self._matcher.feed(pieces, len(ids), finished=finished)
        if found.matched is None:
            return ChoiceStep(found.text, part, part.finish_reason, stop_reason, None, None, begun)
        kept = _first(part, found.kept)
        return ChoiceStep(found.text, kept, "stop", found.matched, None, None, begun, cut=True)

    def _parse(self, step: ChoiceStep) -> tuple[Delta | None, str | None]:
        # A chunk of nothing leaves no trace in a carried history, so no parser may see it.
        if self.parser is None or step.is_nothing:
            return None, step.finish_reason
        return self.parser.step(step.text, step.ids, step.finish_reason)

    def _write_logprobs(self, step: ChoiceStep) -> Raw | None:
        logprobs, written = step.part.logprobs, None
        offset = self.text_offset + len(step.text)
        if logprobs is not None and not self._rules.hide_metadata:
            json, after = self._tools.logprobs.write(
                self._shape, logprobs, self._rules, self.context, self.text_offset
            )
            written = Raw(json)
            offset = after if logprobs.content else offset
        if self._shape is LogprobShape.COMPLETION:
            self.text_offset = offset
        return written

    def _after_the_end(self, part: StreamChoice) -> ChoiceStep:
        """What follows a stop string belongs to no answer; the finish reason went out with it."""
        assert self._matcher is not None
        self._matcher.window.tokens += len(part.token_ids or ())
        return ChoiceStep("", _first(part, 0), None, None, None, None, begun=True)


def whole_choice(
    tools: ModelTools,
    rules: OutputRules,
    part: StreamChoice,
    prompt_ids: list[int] | None,
    shape: LogprobShape,
) -> ChoiceStep:
    """Take a complete choice at once, without a parser.

    The text ends at the stop string that ended the generation: the one the engine reports, whose
    tokens then are the answer's, or the first of the request's own, for which an engine without a
    tokenizer does not look.

    Args:
        tools: The model.
        rules: What the request says of its answer.
        part: The choice.
        prompt_ids: The prompt or its end, to seed decoding.
        shape: How logprobs are written.
    """
    reported = part.stop_reason if isinstance(part.stop_reason, str) else None
    if rules.stop and reported is None:
        return Choice(tools, rules, tools.open_text(rules, prompt_ids), shape).take(part)
    ids, stop_reason = split_stop_token(
        part.token_ids or [], part.finish_reason, part.stop_reason, rules, tools.model.ends
    )
    if reported is None:
        skip, spaces = rules.skip_special_tokens, tools.keeps_spaces(rules)
        text = decode_all(tools.tokens, prompt_ids, ids, skip, spaces)
    else:
        rules = msgspec.structs.replace(rules, stop=(reported,))
        bare = msgspec.structs.replace(part, logprobs=None)
        text = Choice(tools, rules, tools.open_text(rules, prompt_ids), shape).take(bare).text
    logprobs = None
    if part.logprobs is not None and not rules.hide_metadata:
        logprobs = Raw(tools.logprobs.write(shape, part.logprobs, rules)[0])
    return ChoiceStep(text, part, part.finish_reason, stop_reason, None, logprobs, begun=False)


def _first(part: StreamChoice, tokens: int) -> StreamChoice:
    """The engine's words for the first tokens of a chunk."""
    logprobs = part.logprobs
    if logprobs is not None and logprobs.content is not None:
        logprobs = msgspec.structs.replace(logprobs, content=logprobs.content[:tokens])
    ids = None if part.token_ids is None else part.token_ids[:tokens]
    return msgspec.structs.replace(part, token_ids=ids, logprobs=logprobs, weight_versions=NOTHING)
