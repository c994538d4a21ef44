"""A live stream: the parser, the decoder and the flags of one choice of one generation.

It is a function of its context (request and prompt) and of the chunks it has taken, so replaying a
carried history builds the same stream, wherever that happens.
"""

from collections.abc import Sequence
from typing import NamedTuple

from core.decoding import open_stream
from core.generate import StopWindow
from core.openai import Delta
from core.server import Server
from core.stopping import StopMatcher, split_stop_token
from core.vllm_adapter import ChatContext


class LiveStep(NamedTuple):
    """What one chunk adds to the message."""

    delta: Delta
    finish_reason: str | None
    stop_reason: int | str | None


class LiveStream:
    """One choice with a parser. O(output) in size; a chunk costs O(chunk) plus the parser's step.

    Attributes:
        output_ids: Every token taken.
        tools_streamed: A tool call was part of a delta.
    """

    def __init__(self, server: Server, context: ChatContext, prompt_ids: list[int]) -> None:
        """Start a stream that has produced nothing.

        Args:
            server: The model.
            context: The caller's request.
            prompt_ids: The whole prompt; parsers look in it for open reasoning.
        """
        self.rules = context.rules
        self.output_ids: list[int] = []
        self._ends = server.model.ends
        self._prompt_ids = prompt_ids
        self._parser = context.open_stream()
        self._text = open_stream(
            server.tokens,
            prompt_ids,
            self.rules.skip_special_tokens,
            server.keeps_spaces(self.rules),
        )
        self._matcher = StopMatcher(self.rules, StopWindow()) if self.rules.stop else None

    @property
    def tools_streamed(self) -> bool:
        """A tool call was part of a delta; the carried flag goes before the replayed one."""
        return self._parser.tools_streamed

    @tools_streamed.setter
    def tools_streamed(self, value: bool) -> None:
        self._parser.tools_streamed = value

    def replay(self, ids: Sequence[int], chunk_lens: Sequence[int], ended: bool) -> None:
        """Take a carried history, chunk by chunk as it came.

        Args:
            ids: Every output token.
            chunk_lens: Tokens per chunk.
            ended: Nothing follows, so a stop token at the end was left out of the text.
        """
        start, last = 0, len(chunk_lens) - 1
        for i, size in enumerate(chunk_lens):
            chunk = ids[start : start + size]
            start += size
            self.advance(chunk, "stop" if ended and i == last and self._ends_with(chunk) else None)

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
        self.output_ids += ids
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

    def count_reasoning_tokens(self) -> int:
        """Reasoning tokens among those taken."""
        return self._parser.count_reasoning_tokens(self.output_ids)

    def _step(
        self,
        text: str,
        ids: Sequence[int],
        finish_reason: str | None,
        stop_reason: int | str | None,
    ) -> LiveStep:
        delta, reason = self._parser.step(text, ids, finish_reason, self._prompt_ids)
        return LiveStep(delta, reason, stop_reason)

    def _ends_with(self, chunk: Sequence[int]) -> bool:
        decoded, _ = split_stop_token(chunk, "stop", None, self.rules, self._ends)
        return len(decoded) < len(chunk)
