"""The OpenAPI document, built from the same structs that read bodies and write answers."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from core.generate import GenerateChunk, GenerateResponse, StreamState, TokenId
from core.openai import ChatResponse, ChatStreamAnswer, CompletionResponse, CompletionStreamAnswer
from gateway import __version__
from gateway.errors import ErrorResponse
from gateway.routes.models import ModelCard, ModelList
from gateway.routes.ops import Health, Version
from gateway.schemas import Components

Document = dict[str, Any]

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


class _Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the document."""

    path: str
    method: str
    summary: str
    requests: tuple[type, ...] = ()
    answers: tuple[type, ...] = ()
    failures: dict[int, str] = {}


_FAILURES = {
    400: "The body breaks the protocol or a bound; `param` names the member.",
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
    _Operation(
        path="/v1/chat/completions/render",
        method="post",
        summary="A chat request into what the engine generates from",
        requests=(_foreign("A chat completion request, as vLLM takes it."),),
        answers=(RenderedRequest,),
        failures=_RENDER_FAILURES,
    ),
    _Operation(
        path="/v1/completions/render",
        method="post",
        summary="A completion request into what the engine generates from, one entry per prompt",
        requests=(_foreign("A completion request, as vLLM takes it."),),
        answers=(list[RenderedRequest],),
        failures=_RENDER_FAILURES,
    ),
    _Operation(
        path="/v1/responses/render",
        method="post",
        summary="A Responses request into what the engine generates from",
        requests=(_foreign("A Responses request, as vLLM takes it."),),
        answers=(RenderedRequest,),
        failures=_RENDER_FAILURES,
    ),
    _Operation(
        path="/v1/messages/render",
        method="post",
        summary="An Anthropic Messages request into what the engine generates from",
        requests=(_foreign("An Anthropic Messages request, as vLLM takes it."),),
        answers=(RenderedRequest,),
        failures=_RENDER_FAILURES,
    ),
    _Operation(
        path="/tokenize",
        method="post",
        summary="A prompt or a chat into token IDs",
        requests=(_foreign("`prompt`, or `messages` as in a chat; see vLLM's /tokenize."),),
        answers=(TokenizeAnswer,),
        failures=_RENDER_FAILURES,
    ),
    _Operation(
        path="/detokenize",
        method="post",
        summary="Token IDs into text",
        requests=(DetokenizeRequest,),
        answers=(DetokenizeAnswer,),
        failures=_RENDER_FAILURES,
    ),
)

_OPERATIONS = (
    _Operation(
        path="/v1/chat/completions/derender",
        method="post",
        summary="Token IDs of a chat generation into a chat completion, or a chunk of one",
        requests=(DerenderChatRequest, DerenderChatStreamRequest),
        answers=(ChatResponse, ChatStreamAnswer),
        failures=_FAILURES,
    ),
    _Operation(
        path="/v1/completions/derender",
        method="post",
        summary="Token IDs of generations into a completion, or a chunk of one",
        requests=(DerenderCompletionRequest, DerenderCompletionStreamRequest),
        answers=(CompletionResponse, CompletionStreamAnswer),
        failures=_FAILURES,
    ),
    *_RENDER_OPERATIONS,
    _Operation(path="/v1/models", method="get", summary="Served names", answers=(ModelList,)),
    _Operation(
        path="/v1/models/{model_id}",
        method="get",
        summary="One served name",
        answers=(ModelCard,),
        failures={404: "No such name."},
    ),
    _Operation(
        path="/health",
        method="get",
        summary="Whether every shard serves",
        answers=(Health,),
    ),
    _Operation(path="/ping", method="get", summary="Whether the gateway answers"),
    _Operation(path="/version", method="get", summary="Versions", answers=(Version,)),
    _Operation(path="/metrics", method="get", summary="Prometheus metrics, as text"),
)


def document() -> Document:
    """Build the whole document; once per process is enough."""
    components = Components()
    paths: Document = {}
    for row in _OPERATIONS:
        paths.setdefault(row.path, {})[row.method] = _operation(row, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "derender-gateway",
            "version": __version__,
            "description": "Requests into tokens for a token-in / token-out engine, and its tokens"
            " into OpenAI responses.",
        },
        "paths": paths,
        "components": {"schemas": components.schemas},
    }


def _operation(row: _Operation, components: Components) -> Document:
    words = [word.strip("{}") for word in row.path.split("/") if word]
    entry: Document = {
        "operationId": "_".join([row.method, *words]),
        "summary": row.summary,
        "responses": _responses(row, components),
    }
    if row.requests:
        entry["requestBody"] = {"required": True, "content": _content(row.requests, components)}
    if "{model_id}" in row.path:
        parameter = {"name": "model_id", "in": "path", "required": True}
        entry["parameters"] = [{**parameter, "schema": {"type": "string"}}]
    return entry


def _responses(row: _Operation, components: Components) -> Document:
    answered: Document = {"description": "Done."}
    if row.answers:
        answered["content"] = _content(row.answers, components)
    responses: Document = {"200": answered}
    if row.path == "/health":
        text = "Not every shard serves; `reason` says why."
        responses["503"] = {**answered, "description": text}
    for status, text in row.failures.items():
        content = _content((ErrorResponse,), components)
        responses[str(status)] = {"description": text, "content": content}
    return responses


def _content(types: tuple[type, ...], components: Components) -> Document:
    schemas = [components.refer(kind) for kind in types]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"application/json": {"schema": schema}}
