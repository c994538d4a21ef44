"""What the front door takes and streams, for the OpenAPI document alone.

vLLM reads the requests, and shards write the events as bytes; these structs say how both look.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from core.protocol.generate import TokenId
from core.protocol.openai import ChatLogprobs, CompletionLogprobs, Delta, Usage


class StreamOptions(msgspec.Struct, kw_only=True):
    """What a stream tells beside the text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class SamplingRequest(msgspec.Struct, kw_only=True):
    """Members both endpoints take."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    priority: int = 0
    request_id: str | UnsetType = UNSET


class ChatCompletionRequest(SamplingRequest, kw_only=True):
    """A chat in OpenAI's form; members not listed are read as `vllm serve` reads them."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = True
    reasoning_effort: str | None = None
    include_reasoning: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    echo: bool = False
    logprobs: bool | None = False
    top_logprobs: int | None = 0


class TextCompletionRequest(SamplingRequest, kw_only=True):
    """Prompts in OpenAI's form; members not listed are read as `vllm serve` reads them."""

    prompt: str | list[str | TokenId | list[TokenId]]
    """A text, token IDs, or a list of either."""
    max_tokens: int | None = 16
    echo: bool | None = False
    logprobs: int | None = None


class ChatEventChoice(msgspec.Struct, kw_only=True):
    """What an event adds to one chat choice."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[TokenId] | UnsetType | None = UNSET


class ChatEvent(msgspec.Struct, kw_only=True):
    """One event of a streamed chat; members it does not have are left out."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatEventChoice]
    usage: Usage | UnsetType = UNSET
    prompt_token_ids: list[TokenId] | UnsetType | None = UNSET
    prompt_text: str | UnsetType | None = UNSET


class CompletionEventChoice(msgspec.Struct, kw_only=True):
    """What an event adds to one completion choice."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    prompt_token_ids: list[TokenId] | None
    token_ids: list[TokenId] | None


class CompletionEvent(msgspec.Struct, kw_only=True):
    """One event of a streamed completion; members it does not have are left out."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionEventChoice]
    usage: Usage | UnsetType = UNSET
