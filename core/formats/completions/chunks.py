"""What derender answers to one chunk of a completion: every member named, null where it is none."""

import re

from core.formats.format import Head
from core.protocol.generate import NOTHING, GenerateChunk
from core.protocol.openai import (
    CompletionChunk,
    CompletionStreamChoice,
    Usage,
)
from core.protocol.rules import OutputRules
from core.text.choice import ChoiceStep

_PROMPT_NUMBER = re.compile(r".*-(\d{1,6})")


def completion_chunk(
    head: Head,
    chunk: GenerateChunk,
    choices: list[CompletionStreamChoice],
    usage: Usage | None,
) -> CompletionChunk:
    """The chunk of an answer.

    Args:
        head: What every answer names.
        chunk: The engine's chunk.
        choices: What it adds, at most one.
        usage: Token counts, where the engine sent some.
    """
    return CompletionChunk(
        **head._asdict(),
        choices=choices,
        usage=usage,
        system_fingerprint=None,
        metrics=chunk.metrics,
        kv_transfer_params=chunk.kv_transfer_params,
    )


def completion_choice(
    rules: OutputRules, step: ChoiceStep, request_id: str | None, prompt_ids: list[int] | None
) -> CompletionStreamChoice:
    """What a chunk adds to a choice.

    Args:
        rules: What the request says of its answer.
        step: What the chunk added.
        request_id: The engine's, which may name the prompt.
        prompt_ids: Prompt IDs to return.
    """
    return CompletionStreamChoice(
        index=_running_index(step.part.index, request_id, rules),
        text=step.text,
        logprobs=step.logprobs,
        finish_reason=step.finish_reason,
        stop_reason=step.stop_reason,
        prompt_token_ids=prompt_ids,
        token_ids=step.part.token_ids if rules.return_token_ids else None,
        weight_versions=step.part.weight_versions if rules.return_weight_versions else NOTHING,
    )


def _running_index(index: int, request_id: str | None, rules: OutputRules) -> int:
    """Index over all prompts. Render names the engine's request of prompt `i` `<id>-<i>`."""
    if rules.prompt_count == 1 or not (match := _PROMPT_NUMBER.fullmatch(request_id or "")):
        return index
    number = int(match[1])
    return number * rules.samples_per_prompt + index if number < rules.prompt_count else index
