"""One choice of one generation: tokens into text, up to where a stop string or token cuts it."""

from collections.abc import Sequence
from typing import NamedTuple

from core.protocol.generate import NOTHING, StopWindow, StreamChoice
from core.protocol.rules import OutputRules
from core.text.decoding import open_stream
from core.text.logprobs import context_tail
from core.text.model_tools import Server
from core.text.stopping import StopMatcher, split_stop_token


class Taken(NamedTuple):
    """What a chunk adds to a choice."""

    text: str
    ids: list[int]
    """Its tokens; where a stop string matched, up to the one that completed it."""
    finish_reason: str | None
    stop_reason: int | str | None

    @property
    def is_nothing(self) -> bool:
        """Neither text nor tokens nor an end: the engine has not begun to generate."""
        return not (self.text or self.ids) and self.finish_reason is None


class LiveChoice:
    """The decoder and the counts of one choice.

    Attributes:
        tokens: Tokens taken so far.
        finished: The choice has ended; what the engine still sends belongs to no answer.
        cut: It has ended at a stop string, of which the engine knows nothing.
        context: The last tokens taken, for the texts of logprobs.
        text_offset: Characters of all logprob tokens so far.
    """

    def __init__(self, server: Server, rules: OutputRules, prompt_ids: Sequence[int]) -> None:
        """Start a choice that has produced nothing."""
        self.tokens = 0
        self.finished = False
        self.cut = False
        self.context: list[int] = []
        self.text_offset = 0
        self._rules = rules
        self._ends = server.model.ends
        self._text = open_stream(
            server.tokens, prompt_ids, rules.skip_special_tokens, server.keeps_spaces(rules)
        )
        self._matcher = StopMatcher(rules, StopWindow()) if rules.stop else None

    def take(self, chunk: StreamChoice) -> Taken:
        """Take one chunk; where a stop string cuts its tokens, what it says of them is cut, too.

        Its weight versions are left out there: an engine that was stopped early sends none.
        """
        ids = chunk.token_ids or []
        text_ids, stop_reason = split_stop_token(
            ids, chunk.finish_reason, chunk.stop_reason, self._rules, self._ends
        )
        if self._matcher is None:
            taken = Taken(self._text.feed(text_ids), ids, chunk.finish_reason, stop_reason)
        else:
            taken = self._match(self._matcher, chunk, ids, text_ids, stop_reason)
        self.tokens += len(taken.ids)
        self.finished = taken.finish_reason is not None
        return taken

    def remember(self, ids: Sequence[int]) -> None:
        """Keep the end of the tokens taken, once their logprobs are written."""
        self.context = context_tail(self.context, ids)

    def _match(
        self,
        matcher: StopMatcher,
        chunk: StreamChoice,
        ids: list[int],
        text_ids: Sequence[int],
        stop_reason: int | str | None,
    ) -> Taken:
        pieces = [self._text.feed([token_id]) for token_id in text_ids]
        found = matcher.feed(pieces, len(ids), finished=chunk.finish_reason is not None)
        if found.matched is None:
            return Taken(found.text, ids, chunk.finish_reason, stop_reason)
        self.cut = True
        if chunk.logprobs is not None and chunk.logprobs.content is not None:
            del chunk.logprobs.content[found.kept :]
        chunk.weight_versions = NOTHING
        return Taken(found.text, ids[: found.kept], "stop", found.matched)
