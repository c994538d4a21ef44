"""What derender answers to one chunk of a chat: every member named, null where there is none."""

from msgspec import UNSET

from core.formats.format import Head
from core.protocol.generate import NOTHING, GenerateChunk
from core.protocol.openai import (
    ChatChunk,
    ChatStreamChoice,
    Delta,
    Function,
    ToolCallDelta,
    Usage,
)
from core.protocol.rules import OutputRules
from core.text.choice import ChoiceStep


def chat_chunk(
    head: Head,
    chunk: GenerateChunk,
    choices: list[ChatStreamChoice],
    usage: Usage | None,
    prompt_ids: list[int] | None,
) -> ChatChunk:
    """The chunk of an answer.

    Args:
        head: What every answer names.
        chunk: The engine's chunk.
        choices: What it adds, at most one.
        usage: Token counts, where the engine sent some.
        prompt_ids: Prompt IDs to return.
    """
    return ChatChunk(
        id=head.id,
        created=head.created,
        model=head.model,
        choices=choices,
        usage=usage,
        system_fingerprint=None,
        prompt_token_ids=prompt_ids,
        prompt_text=None,
        metrics=chunk.metrics,
        kv_transfer_params=chunk.kv_transfer_params,
    )


def chat_choice(
    rules: OutputRules, step: ChoiceStep, delta: Delta, *, first: bool
) -> ChatStreamChoice:
    """What a chunk adds to a choice; the first one names the role.

    Args:
        rules: What the request says of its answer.
        step: What the chunk added.
        delta: What that is of the message.
        first: The role was not named yet.
    """
    if first:
        delta.role = "assistant"
    shows_ids = rules.return_token_ids and not rules.hide_metadata
    return ChatStreamChoice(
        index=step.part.index,
        delta=_named(delta),
        logprobs=step.logprobs,
        finish_reason=step.finish_reason,
        stop_reason=step.stop_reason,
        token_ids=step.part.token_ids if shows_ids else None,
        weight_versions=step.part.weight_versions if rules.return_weight_versions else NOTHING,
    )


def _named(delta: Delta) -> Delta:
    """The delta with null for what it lacks."""
    return Delta(
        role=None if delta.role is UNSET else delta.role,
        content=None if delta.content is UNSET else delta.content,
        reasoning=None if delta.reasoning is UNSET else delta.reasoning,
        tool_calls=(
            UNSET if delta.tool_calls is UNSET else [_named_call(call) for call in delta.tool_calls]
        ),
    )


def _named_call(call: ToolCallDelta) -> ToolCallDelta:
    function = None
    if isinstance(call.function, Function):
        function = Function(
            name=None if call.function.name is UNSET else call.function.name,
            arguments=None if call.function.arguments is UNSET else call.function.arguments,
        )
    return ToolCallDelta(
        id=None if call.id is UNSET else call.id,
        type=None if call.type is UNSET else call.type,
        index=call.index,
        function=function,
    )
