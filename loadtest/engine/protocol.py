"""The bodies of `POST /inference/v1/generate`, member for member as an engine sends them."""

import re
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

T = TypeVar("T")

MAX_LOGPROBS = 20


class SamplingParams(Struct, kw_only=True):
    """The sampling parameters that the scripted engine heeds; it passes over the rest."""

    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None


class StreamOptions(Struct, kw_only=True):
    """Whether a stream reports its usage, at its end or with each event."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerateRequest(Struct, kw_only=True):
    """The body of a generate call; unknown members are passed over."""

    token_ids: list[int]
    sampling_params: SamplingParams
    request_id: str | None = None
    model: str | None = None
    return_token_ids: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class TokenLogprob(Struct):
    """One candidate token of a position."""

    token_id: int
    logprob: float
    rank: int


class PositionLogprobs(Struct):
    """The sampled token of a position with its candidates, the sampled one first."""

    token_id: int
    logprob: float
    rank: int
    top_logprobs: list[TokenLogprob]


class Logprobs(Struct):
    """The logprobs of the tokens of one choice or chunk."""

    content: list[PositionLogprobs]


class PromptLogprob(Struct):
    """One candidate token of a position of the prompt."""

    logprob: float
    rank: int
    decoded_token: str | None = None


class WeightVersion(Struct):
    """The span of tokens that one version of the weights produced."""

    version: str
    start: int
    end: int


class GeneratedChoice(Struct, kw_only=True):
    """One choice of an answer, or its part in one event."""

    index: int
    finish_reason: str | None
    stop_reason: int | None
    token_ids: list[int]
    routed_experts: None = None
    sampling_mask: None = None
    weight_versions: list[WeightVersion] | None
    logprobs: Logprobs | None


class Usage(Struct, kw_only=True):
    """Token counts; the details are null, or left out in the last event of a stream."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: UnsetType | None = None
    completion_tokens_details: UnsetType | None = None


class GenerateResponse(Struct, kw_only=True):
    """The whole answer of a call that does not stream."""

    request_id: str
    model: str
    created: int
    usage: Usage
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | None = None
    """For each token of the prompt its candidates by ID, and none for the first one."""
    prompt_token_id_logprobs: None = None
    prompt_token_ids: list[int] | None
    mm_placeholders: None = None
    metrics: None = None
    kv_transfer_params: None = None
    ec_transfer_params: None = None
    output_mode: str = "tokens"
    choices: list[GeneratedChoice]


class StreamEvent(Struct, kw_only=True):
    """One event of a stream; the prompt is in the first one when it was asked for."""

    request_id: str
    usage: Usage | None
    prompt_token_ids: list[int] | UnsetType = UNSET
    output_mode: str = "tokens"
    choices: list[GeneratedChoice]


class RequestError(Exception):
    """The caller's request cannot be served: an HTTP status and an OpenAI-shaped body."""

    def __init__(
        self, status: int, message: str, param: str | None = None, kind: str = "BadRequestError"
    ) -> None:
        """Say in `message` what is wrong, and with which member (`param`)."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.kind = kind

    def body(self) -> dict[str, Any]:
        """Return the error as OpenAI's API states it."""
        error = {"message": self.message, "type": self.kind}
        return {"error": {**error, "param": self.param, "code": self.status}}


_decoder = msgspec.json.Decoder(GenerateRequest)
_MISSING = re.compile(r"missing required field `(\w+)`")
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a request body.

    Raises:
        RequestError: The body is not JSON, or a member is missing or of the wrong type.
    """
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        message = str(error)
        raise RequestError(
            HTTPStatus.BAD_REQUEST, message, _param_of(message), "Bad Request"
        ) from None


def decode_request(body: bytes) -> GenerateRequest:
    """Decode and check the body of a generate call.

    Raises:
        RequestError: The body is not JSON, or a member is missing, of the wrong type or out of
            bounds.
    """
    request = decode(_decoder, body)
    _check_bounds(request)
    return request


def check_tokens_only(request: GenerateRequest) -> None:
    """Refuse what an engine that never makes text cannot do."""
    if request.sampling_params.stop:
        message = "Stop strings need text, and this engine makes tokens only"
        raise RequestError(HTTPStatus.BAD_REQUEST, message, "stop")


def _param_of(message: str) -> str | None:
    """Return the member that a decoding error is about, as a path below the body."""
    missing, path = _MISSING.search(message), _PATH.search(message)
    names = [match.group(1) for match in (path, missing) if match]
    return ".".join(["body", *names]) if names else None


def _check_bounds(request: GenerateRequest) -> None:
    """Refuse counts that no answer can have."""
    params = request.sampling_params
    checks = (
        (not request.token_ids, "token_ids", "token_ids must hold at least one token ID"),
        (min(request.token_ids, default=0) < 0, "token_ids", "token_ids must not be negative"),
        (params.n < 1, "n", f"n must be at least 1, got {params.n}"),
        (
            params.max_tokens is not None and params.max_tokens < 1,
            "max_tokens",
            f"max_tokens must be at least 1, got {params.max_tokens}",
        ),
        (
            not 0 <= params.min_tokens <= (params.max_tokens or params.min_tokens),
            "min_tokens",
            f"min_tokens must be from 0 to max_tokens, got {params.min_tokens}",
        ),
        (
            params.logprobs is not None and not 0 <= params.logprobs <= MAX_LOGPROBS,
            "logprobs",
            f"logprobs must be from 0 to {MAX_LOGPROBS}, got {params.logprobs}",
        ),
        (
            params.prompt_logprobs is not None
            and (bool(request.stream) or not 0 <= params.prompt_logprobs <= MAX_LOGPROBS),
            "prompt_logprobs",
            f"prompt_logprobs must be from 0 to {MAX_LOGPROBS}, and not streamed",
        ),
    )
    for failed, param, message in checks:
        if failed:
            raise RequestError(HTTPStatus.BAD_REQUEST, message, param)
