"""Token counts as the coupled server reports them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw

from core.protocol.generate import NOTHING, EngineUsage
from core.protocol.openai import Usage


def usage(
    prompt_tokens: int,
    completion_tokens: int,
    reasoning_tokens: int | None,
    prompt_details: Raw = NOTHING,
) -> Usage:
    """Usage of a response.

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
        completion_tokens_details=(
            None if reasoning_tokens is None else {"reasoning_tokens": reasoning_tokens}
        ),
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


def count_tokens(choices: Sequence[Any]) -> int:
    """Generated tokens of several choices."""
    return sum(len(choice.token_ids or ()) for choice in choices)
