"""Token counts as the coupled server reports them."""

from collections.abc import Sequence

from msgspec import UNSET, Raw, UnsetType

from core.formats.format import Totals
from core.protocol.generate import NOTHING, EngineUsage
from core.protocol.openai import Usage


def usage(
    prompt_tokens: int,
    completion_tokens: int,
    reasoning_tokens: int | None,
    prompt_details: Raw = NOTHING,
) -> Usage:
    """Usage of an answer, every member named.

    Args:
        prompt_tokens: Tokens of all prompts.
        completion_tokens: Every generated token, the end token included.
        reasoning_tokens: Those inside reasoning; None where no reasoning parser is configured.
        prompt_details: The engine's `prompt_tokens_details`, passed through.
    """
    return Usage(
        prompt_tokens=prompt_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        completion_tokens=completion_tokens,
        prompt_tokens_details=prompt_details,
        completion_tokens_details=_details(reasoning_tokens),
    )


def chunk_usage(
    engine: EngineUsage | None, prompt_tokens: int | None, reasoning_tokens: int | None
) -> Usage | None:
    """Usage of a chunk, None where the engine sent none; the caller's prompt count goes first."""
    if engine is None:
        return None
    prompt = prompt_tokens if prompt_tokens is not None else engine.prompt_tokens or 0
    details = engine.prompt_tokens_details
    return usage(prompt, engine.completion_tokens or 0, reasoning_tokens, details)


def event_usage(
    prompt_tokens: int,
    completion_tokens: int,
    details: dict[str, int] | UnsetType | None = UNSET,
) -> Usage:
    """Usage of an event that is not the last one."""
    return Usage(
        prompt_tokens=prompt_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        completion_tokens=completion_tokens,
        completion_tokens_details=details,
    )


def final_usage(totals: Totals, *, counts_reasoning: bool) -> Usage:
    """Usage of a stream's last event, without members nobody counted."""
    first = totals.usages[0]
    details = UNSET if first is None else first.prompt_tokens_details
    made = event_usage(
        totals.prompt_tokens,
        totals.completion_tokens,
        _details(totals.reasoning_tokens) if counts_reasoning else UNSET,
    )
    made.prompt_tokens_details = UNSET if details in (UNSET, NOTHING) else details
    return made


def prompt_tokens(usage: EngineUsage | None, prompt: Sequence[int]) -> int:
    """The engine's count, which knows of encoders; that of the prompt where it sends none."""
    counted = usage.prompt_tokens if usage else None
    return len(prompt) if counted is None else counted


def _details(reasoning_tokens: int | None) -> dict[str, int] | None:
    return None if reasoning_tokens is None else {"reasoning_tokens": reasoning_tokens}
