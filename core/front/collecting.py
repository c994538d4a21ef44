"""A stream put together again, for callers who want one answer and engines that must be stopped.

An engine without a tokenizer knows no stop strings, so it is asked to stream, and is stopped where
one matches.
"""

from typing import TypeVar

from core.formats.format import Asked, Format, Totals
from core.protocol.generate import (
    NOTHING,
    GenerateChoice,
    GenerateChunk,
    GenerateLogprobs,
    GenerateResponse,
)
from core.text.choice import Choice, ChoiceStep

T = TypeVar("T")


class Collector:
    """Keeps what a stream brings, O(output) in size; a `core.formats.format.Writer`."""

    keeps_events = True

    def __init__(self, format: Format, asked: Asked) -> None:
        """Start with nothing.

        Args:
            format: Writes the answer in the end.
            asked: The request.
        """
        self._format = format
        self._asked = asked
        samples = range(asked.recipe.samples)
        self._responses = [
            GenerateResponse(choices=[GenerateChoice(index=i, token_ids=[]) for i in samples])
            for _ in asked.prompts
        ]

    def open_choice(self, prompt: int, sample: int) -> Choice:
        """A choice whose text only says where it ends."""
        return self._format.plain_choice(self._asked, prompt)

    def open(self) -> bytes:
        """Nothing is sent before the end."""
        return b""

    def write(self, index: int, choice: Choice, step: ChoiceStep, chunk: GenerateChunk) -> bytes:
        """Keep one chunk of one choice; nothing is sent before the end."""
        prompt, at = divmod(index, self._asked.recipe.samples)
        response, part = self._responses[prompt], step.part
        kept = response.choices[at]
        kept.token_ids = _joined(kept.token_ids, step.ids)
        kept.finish_reason, kept.stop_reason = step.finish_reason, step.stop_reason
        if part.logprobs is not None:
            before = kept.logprobs.content if kept.logprobs else None
            kept.logprobs = GenerateLogprobs(content=_joined(before, part.logprobs.content))
        if part.weight_versions != NOTHING:
            kept.weight_versions = part.weight_versions
        kept.routed_experts = part.routed_experts or kept.routed_experts
        if chunk.kv_transfer_params != NOTHING:
            response.kv_transfer_params = chunk.kv_transfer_params
        return b""

    def finish(self, totals: Totals) -> bytes:
        """The answer."""
        for response, usage in zip(self._responses, totals.usages, strict=True):
            response.usage, response.metrics = usage, totals.metrics
        return self._format.whole(self._asked, self._responses)


def _joined(whole: list[T] | None, more: list[T] | None) -> list[T]:
    """The list with more at its end; it grows in place."""
    if whole is None:
        return list(more or ())
    whole.extend(more or ())
    return whole
