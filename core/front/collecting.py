"""A stream put together again, for callers who want one answer and engines that must be stopped.

An engine without a tokenizer knows no stop strings, so it is asked to stream, and is stopped where
one matches.
"""

from typing import TypeVar

from core.front.whole import whole_answer
from core.front.writer import Totals
from core.protocol.generate import (
    NOTHING,
    GenerateChoice,
    GenerateChunk,
    GenerateLogprobs,
    GenerateResponse,
    StreamChoice,
)
from core.protocol.plan import ApiName, Recipe
from core.protocol.rules import OutputRules
from core.text.choice import LiveChoice, Taken
from core.text.model_tools import Server

T = TypeVar("T")


class Collector:
    """Keeps what a stream brings, O(output) in size; a `core.front.writer.Writer`."""

    keeps_events = True

    def __init__(
        self, server: Server, recipe: Recipe, created: int, prompts: list[list[int]]
    ) -> None:
        """Start with nothing.

        Args:
            server: The model.
            recipe: What the request asks for.
            created: Unix time to report.
            prompts: Token IDs of each prompt.

        Raises:
            BadRequest: The request is none.
        """
        self.rules: OutputRules = (
            server.model.chat_context(recipe.request).rules
            if recipe.api is ApiName.CHAT
            else server.model.completion_rules(recipe.request)
        )
        self._server = server
        self._recipe = recipe
        self._created = created
        self._prompts = prompts
        self._responses = [
            GenerateResponse(
                choices=[GenerateChoice(index=i, token_ids=[]) for i in range(recipe.samples)]
            )
            for _ in recipe.prompts
        ]

    def open(self) -> list[bytes]:
        """Nothing is sent before the end."""
        return []

    def write(
        self, index: int, choice: LiveChoice, taken: Taken, part: StreamChoice, chunk: GenerateChunk
    ) -> bytes:
        """Keep one chunk of one choice; nothing is sent before the end."""
        prompt, at = divmod(index, self._recipe.samples)
        response = self._responses[prompt]
        kept = response.choices[at]
        kept.token_ids = _joined(kept.token_ids, taken.ids)
        kept.finish_reason, kept.stop_reason = taken.finish_reason, taken.stop_reason
        if part.logprobs is not None:
            before = kept.logprobs.content if kept.logprobs else None
            kept.logprobs = GenerateLogprobs(content=_joined(before, part.logprobs.content))
        if part.weight_versions != NOTHING:
            kept.weight_versions = part.weight_versions
        kept.routed_experts = part.routed_experts or kept.routed_experts
        if chunk.kv_transfer_params != NOTHING:
            response.kv_transfer_params = chunk.kv_transfer_params
        return b""

    def replay(self, index: int, choice: LiveChoice, taken: Taken) -> None:
        """Nothing is left to note: whole events are taken again."""

    def finish(self, totals: Totals) -> bytes:
        """The answer."""
        for response, usage in zip(self._responses, totals.usages, strict=True):
            response.usage, response.metrics = usage, totals.metrics
        return whole_answer(
            self._server, self._recipe, self._created, self._prompts, self._responses
        )


def _joined(whole: list[T] | None, more: list[T] | None) -> list[T]:
    """The list with more at its end; it grows in place."""
    if whole is None:
        return list(more or ())
    whole.extend(more or ())
    return whole
