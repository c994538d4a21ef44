"""What both streamed chat paths write: choices and chunks."""

from collections.abc import Sequence
from typing import cast

from msgspec import Raw

from core.protocol import openai
from core.protocol.calls import DerenderChatChunk
from core.protocol.generate import NOTHING, GenerateChunk, StreamChoice
from core.protocol.rules import OutputRules
from core.text.model_tools import Server


def chat_chunk(
    call: DerenderChatChunk,
    chunk: GenerateChunk,
    choices: list[openai.ChatStreamChoice],
    usage: openai.Usage | None,
    prompt_ids: list[int] | None,
    created: int,
) -> openai.ChatChunk:
    """The chunk of an answer.

    Args:
        call: The call answered.
        chunk: The engine's chunk.
        choices: What it adds, at most one.
        usage: Token counts, where the engine sent some.
        prompt_ids: Prompt IDs to return.
        created: Unix time of the stream.
    """
    return openai.ChatChunk(
        id=chunk.request_id or call.fallback_id,
        created=created,
        model=call.model,
        choices=choices,
        usage=usage,
        prompt_token_ids=prompt_ids,
        metrics=chunk.metrics,
        kv_transfer_params=chunk.kv_transfer_params,
    )


def chat_logprobs(
    server: Server, rules: OutputRules, choice: StreamChoice, context: Sequence[int]
) -> openai.ChatLogprobs | None:
    """Logprobs of a chunk; `context` are the tokens sampled before it."""
    if choice.logprobs is None:
        return None
    return cast(openai.ChatLogprobs, Raw(server.logprobs.chat(choice.logprobs, rules, context)))


def send_role(delta: openai.Delta, role_sent: bool) -> bool:
    """Name the role in the first delta of a choice; True, for the state."""
    if not role_sent:
        delta.role = "assistant"
    return True


def weight_versions(rules: OutputRules, choice: StreamChoice) -> Raw:
    """The engine's weight versions, where the request asks for them."""
    return choice.weight_versions if rules.return_weight_versions else NOTHING
