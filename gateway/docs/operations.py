"""The rows of the OpenAPI document: each path with what it takes and answers."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from core.protocol.generate import GenerateChunk, GenerateResponse, TokenId
from core.protocol.openai import (
    ChatResponse,
    ChatStreamAnswer,
    CompletionResponse,
    CompletionStreamAnswer,
)
from core.protocol.stream_state import StreamState
from gateway.docs.front_door_schemas import (
    ChatCompletionRequest,
    ChatEvent,
    CompletionEvent,
    TextCompletionRequest,
)
from gateway.routes.models import ModelCard, ModelList
from gateway.routes.ops import Health, Version

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


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the document."""

    path: str
    method: str
    summary: str
    requests: tuple[type, ...] = ()
    answers: tuple[type, ...] = ()
    events: type | None = None
    """The payload of each server-sent event, where `stream` is true."""
    description: str = ""
    failures: dict[int, str] = {}


_FAILURES = {
    400: "The body breaks the protocol or a bound; `param` names the member.",
    401: "No known key, where --api-key names some.",
    404: "The model named is not served.",
    413: "The body is longer than --max-body-bytes.",
    500: "The server failed.",
    503: "Warming up, overloaded or restarting; see Retry-After.",
}

_RENDER_FAILURES = {
    **_FAILURES,
    400: "vLLM's renderer refuses the request, in its own words, or the body is no such request.",
    501: "The model cannot do what is asked.",
}


def _foreign(description: str) -> type:
    """A request body that vLLM's own server documents."""
    schema = {"description": description}
    kind: Any = Annotated[dict[str, Any], Meta(extra_json_schema=schema)]
    return kind  # type: ignore[no-any-return]


_RENDER_OPERATIONS = (
    Operation(
        path="/v1/chat/completions/render",
        method="post",
        summary="A chat request into what the engine generates from",
        requests=(_foreign("A chat completion request, as vLLM takes it."),),
        answers=(RenderedRequest,),
        failures=_RENDER_FAILURES,
    ),
    Operation(
        path="/v1/completions/render",
        method="post",
        summary="A completion request into what the engine generates from, one entry per prompt",
        requests=(_foreign("A completion request, as vLLM takes it."),),
        answers=(list[RenderedRequest],),
        failures=_RENDER_FAILURES,
    ),
    Operation(
        path="/v1/responses/render",
        method="post",
        summary="A Responses request into what the engine generates from",
        requests=(_foreign("A Responses request, as vLLM takes it."),),
        answers=(RenderedRequest,),
        failures=_RENDER_FAILURES,
    ),
    Operation(
        path="/v1/messages/render",
        method="post",
        summary="An Anthropic Messages request into what the engine generates from",
        requests=(_foreign("An Anthropic Messages request, as vLLM takes it."),),
        answers=(RenderedRequest,),
        failures=_RENDER_FAILURES,
    ),
    Operation(
        path="/tokenize",
        method="post",
        summary="A prompt or a chat into token IDs",
        requests=(_foreign("`prompt`, or `messages` as in a chat; see vLLM's /tokenize."),),
        answers=(TokenizeAnswer,),
        failures=_RENDER_FAILURES,
    ),
    Operation(
        path="/detokenize",
        method="post",
        summary="Token IDs into text",
        requests=(DetokenizeRequest,),
        answers=(DetokenizeAnswer,),
        failures=_RENDER_FAILURES,
    ),
)

_FRONT_DOOR = (
    "Served where --engine-url names an engine, else 404. With `stream: true` the answer is a"
    " stream of server-sent events that ends with `data: [DONE]`; a failure after the first of them"
    " is an event with the `error` that would have been answered."
)

_FRONT_DOOR_FAILURES = {
    **_FAILURES,
    400: "vLLM's renderer or the engine refuses the request, or it asks for what is not supported;"
    " `param` names the member.",
    404: "The model named is not served, or no engine is named.",
    429: "The engine is overloaded.",
    502: "The engine cannot be reached (`engine_unreachable`) or broke off (`engine_failed`).",
    503: "Warming up, overloaded or shutting down, here or at the engine; see Retry-After.",
    504: "The engine was silent for too long (`engine_timed_out`), or the server.",
}

_FRONT_DOOR_OPERATIONS = (
    Operation(
        path="/v1/chat/completions",
        method="post",
        summary="A chat, answered by an engine",
        description=_FRONT_DOOR,
        requests=(ChatCompletionRequest,),
        answers=(ChatResponse,),
        events=ChatEvent,
        failures=_FRONT_DOOR_FAILURES,
    ),
    Operation(
        path="/v1/completions",
        method="post",
        summary="One or more prompts, continued by an engine",
        description=_FRONT_DOOR,
        requests=(TextCompletionRequest,),
        answers=(CompletionResponse,),
        events=CompletionEvent,
        failures=_FRONT_DOOR_FAILURES,
    ),
)

OPERATIONS = (
    *_FRONT_DOOR_OPERATIONS,
    Operation(
        path="/v1/chat/completions/derender",
        method="post",
        summary="Token IDs of a chat generation into a chat completion, or a chunk of one",
        requests=(DerenderChatRequest, DerenderChatStreamRequest),
        answers=(ChatResponse, ChatStreamAnswer),
        failures=_FAILURES,
    ),
    Operation(
        path="/v1/completions/derender",
        method="post",
        summary="Token IDs of generations into a completion, or a chunk of one",
        requests=(DerenderCompletionRequest, DerenderCompletionStreamRequest),
        answers=(CompletionResponse, CompletionStreamAnswer),
        failures=_FAILURES,
    ),
    *_RENDER_OPERATIONS,
    Operation(path="/v1/models", method="get", summary="Served names", answers=(ModelList,)),
    Operation(
        path="/v1/models/{model_id}",
        method="get",
        summary="One served name",
        answers=(ModelCard,),
        failures={404: "No such name."},
    ),
    Operation(
        path="/health",
        method="get",
        summary="Whether every shard serves",
        answers=(Health,),
    ),
    Operation(path="/ping", method="get", summary="Whether the gateway answers"),
    Operation(path="/version", method="get", summary="Versions", answers=(Version,)),
    Operation(path="/metrics", method="get", summary="Prometheus metrics, as text"),
)
