"""What requests look like, for the OpenAPI document: shards and vLLM read them, not the gateway."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from core.protocol.generate import GenerateChunk, GenerateResponse, TokenId
from core.protocol.stream_state import StreamState

ChatRequest = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema={
            "description": "The whole chat request that went to the renderer, in vLLM's form."
        }
    ),
]
CompletionRequest = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={"description": "The completion request that went to the renderer."}),
]
PromptIds = Annotated[
    list[TokenId] | None,
    Meta(
        extra_json_schema={
            "description": "Token IDs of the prompt; seed detokenization and the reasoning state."
        }
    ),
]


class _Common(msgspec.Struct, kw_only=True):
    model: str | None = None
    """A served name; the first one where it is missing."""


class DerenderChatRequest(_Common, kw_only=True):
    """One complete generation of a chat request."""

    stream: Literal[False] = False
    generate_response: GenerateResponse
    prompt_tokens: int | None = None
    prompt_token_ids: PromptIds = None
    chat_request: ChatRequest | None = None


class DerenderChatStreamRequest(_Common, kw_only=True):
    """One chunk of a generation of a chat request."""

    stream: Literal[True]
    generate_chunk: GenerateChunk
    stream_state: StreamState | None = None
    checkpoints: bool = False
    """Answer with a checkpoint in place of the state, and accept it in the next call."""
    prompt_tokens: int | None = None
    prompt_token_ids: PromptIds = None
    chat_request: ChatRequest | None = None


class DerenderCompletionRequest(_Common, kw_only=True):
    """The complete generations of a completion request, one per prompt."""

    stream: Literal[False] = False
    generate_responses: list[GenerateResponse]
    prompt_tokens: list[int] | None = None
    prompt_token_ids: list[PromptIds] | None = None
    completion_request: CompletionRequest | None = None


class DerenderCompletionStreamRequest(_Common, kw_only=True):
    """One chunk of a generation of a completion request."""

    stream: Literal[True]
    generate_chunk: GenerateChunk
    stream_state: StreamState | None = None
    prompt_tokens: int | None = None
    prompt_token_ids: PromptIds = None
    completion_request: CompletionRequest | None = None


class RenderedRequest(msgspec.Struct, kw_only=True):
    """What the engine's `/inference/v1/generate` takes, as vLLM's renderer gives it."""

    request_id: str
    token_ids: list[TokenId]
    sampling_params: dict[str, Any]


class TokenizeAnswer(msgspec.Struct, kw_only=True):
    """The tokens of a prompt."""

    count: int
    max_model_len: int
    tokens: list[TokenId]
    token_strs: list[str] | None = None


class DetokenizeRequest(_Common, kw_only=True):
    """Tokens to decode."""

    tokens: list[TokenId]


class DetokenizeAnswer(msgspec.Struct, kw_only=True):
    """Their text."""

    prompt: str


def foreign(description: str) -> Any:
    """A request body that vLLM's own server documents."""
    return Annotated[dict[str, Any], Meta(extra_json_schema={"description": description})]


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
