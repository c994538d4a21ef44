"""The caller's side of a body: OpenAI responses with vLLM's additions, member for member.

One declaration for what derender answers and for what the front door streams. A member whose type
says so may be left out: derender names every one, null where there is none, as `vllm launch
render` does; events of the front door leave it out, as `vllm serve` does.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from core.protocol.generate import NOTHING, PromptLogprob
from core.protocol.stream_state import StreamState

PromptLogprobs = list[dict[str, PromptLogprob] | None]


class TopLogprob(msgspec.Struct, kw_only=True):
    """One candidate at one position."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob, kw_only=True):
    """The sampled token of one position."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, kw_only=True):
    """Logprobs of a chat choice, one position per token."""

    content: list[TokenLogprob] | None = None


class CompletionLogprobs(msgspec.Struct, kw_only=True):
    """Logprobs of a completion choice: parallel lists, one entry per token."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class Function(msgspec.Struct, kw_only=True):
    """A called function; in a stream each member comes once or in pieces."""

    name: str | UnsetType | None = UNSET
    arguments: str | UnsetType | None = UNSET


class ToolCall(msgspec.Struct, kw_only=True):
    """A complete tool call."""

    id: str
    type: Literal["function"] = "function"
    function: Function


class ToolCallDelta(msgspec.Struct, kw_only=True):
    """What a chunk adds to a tool call."""

    id: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    index: int
    function: Function | UnsetType | None = UNSET


class Message(msgspec.Struct, kw_only=True):
    """The assistant's message."""

    role: str = "assistant"
    content: str | None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET
    reasoning: str | None


class Delta(msgspec.Struct, kw_only=True):
    """What a chunk adds to the assistant's message."""

    role: str | UnsetType | None = UNSET
    content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class Usage(msgspec.Struct, kw_only=True):
    """Token counts."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: Raw | UnsetType = UNSET
    completion_tokens_details: dict[str, int] | UnsetType | None = UNSET


class ChatChoice(msgspec.Struct, kw_only=True):
    """One complete chat choice."""

    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: list[int] | None
    routed_experts: str | None
    weight_versions: Raw = NOTHING


class ChatResponse(msgspec.Struct, kw_only=True):
    """Answer of a chat, in one piece."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    service_tier: None = None
    system_fingerprint: None = None
    usage: Usage
    prompt_logprobs: PromptLogprobs | None
    prompt_token_ids: list[int] | None
    prompt_text: str | None = None
    kv_transfer_params: Raw = NOTHING
    ec_transfer_params: Raw = NOTHING
    metrics: Raw = NOTHING


class ChatStreamChoice(msgspec.Struct, kw_only=True):
    """What a chunk adds to one chat choice."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType | None = UNSET
    weight_versions: Raw | UnsetType = UNSET


class ChatChunk(msgspec.Struct, kw_only=True):
    """One chunk of a chat answer."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatStreamChoice]
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType | None = UNSET
    prompt_text: str | UnsetType | None = UNSET
    metrics: Raw | UnsetType = UNSET
    kv_transfer_params: Raw | UnsetType = UNSET


class ChatStreamAnswer(msgspec.Struct, kw_only=True):
    """Answer of `/v1/chat/completions/derender` with `stream: true`."""

    chunk: ChatChunk
    stream_state: StreamState


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One complete completion choice."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: list[int] | None
    prompt_logprobs: PromptLogprobs | None
    prompt_token_ids: list[int] | None
    routed_experts: str | None
    weight_versions: Raw = NOTHING


class CompletionResponse(msgspec.Struct, kw_only=True):
    """Answer of `/v1/completions/derender`, one-shot."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    service_tier: None = None
    system_fingerprint: None = None
    usage: Usage
    kv_transfer_params: Raw = NOTHING
    ec_transfer_params: Raw = NOTHING
    metrics: Raw = NOTHING


class CompletionStreamChoice(msgspec.Struct, kw_only=True):
    """What a chunk adds to one completion choice."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    prompt_token_ids: list[int] | None
    token_ids: list[int] | None
    weight_versions: Raw | UnsetType = UNSET


class CompletionChunk(msgspec.Struct, kw_only=True):
    """One chunk of a completion answer."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionStreamChoice]
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: UnsetType | None = UNSET
    metrics: Raw | UnsetType = UNSET
    kv_transfer_params: Raw | UnsetType = UNSET


class CompletionStreamAnswer(msgspec.Struct, kw_only=True):
    """Answer of `/v1/completions/derender` with `stream: true`."""

    chunk: CompletionChunk
    stream_state: StreamState
