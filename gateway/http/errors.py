"""Failures as HTTP: the one table from fault code to status, and the OpenAI-shaped body."""

import msgspec

from core.protocol.errors import (
    DerenderError,
    EngineRefused,
    FaultCode,
    InternalFault,
    RenderRefused,
)


class Row(msgspec.Struct, frozen=True):
    """How one kind of failure looks over HTTP."""

    status: int
    type: str
    retry_after_s: int | None = None
    code: str | None = None
    """Stable name for clients to act on; the status itself, as vLLM has it, where there is none."""


TABLE: dict[FaultCode, Row] = {
    FaultCode.INVALID_REQUEST: Row(400, "BadRequestError"),
    FaultCode.UNKNOWN_MODEL: Row(404, "NotFoundError"),
    FaultCode.UNKNOWN_CHECKPOINT: Row(409, "ConflictError", code="unknown_checkpoint"),
    FaultCode.RENDER_REFUSED: Row(400, "BadRequestError"),
    FaultCode.BODY_TOO_LARGE: Row(413, "RequestEntityTooLargeError"),
    FaultCode.INTERNAL: Row(500, "InternalServerError"),
    FaultCode.CONTEXT_MISSING: Row(500, "InternalServerError"),
    FaultCode.SHARD_LOST_TWICE: Row(500, "InternalServerError", code="shard_lost_twice"),
    FaultCode.SHARD_UNAVAILABLE: Row(503, "ServiceUnavailableError", retry_after_s=2),
    FaultCode.STREAM_MISSING: Row(500, "InternalServerError"),
    FaultCode.ENGINE_REFUSED: Row(502, "BadGatewayError"),
    FaultCode.ENGINE_UNREACHABLE: Row(502, "BadGatewayError", code="engine_unreachable"),
    FaultCode.ENGINE_FAILED: Row(502, "BadGatewayError", code="engine_failed"),
    FaultCode.ENGINE_TIMED_OUT: Row(504, "GatewayTimeoutError", code="engine_timed_out"),
    FaultCode.TIMED_OUT: Row(504, "GatewayTimeoutError"),
    FaultCode.OVERLOADED: Row(503, "ServiceUnavailableError", retry_after_s=1),
}

_HTTP_TYPES = {404: "NotFoundError", 405: "MethodNotAllowedError"}


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: int | str


class ErrorResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is not a success."""

    error: ErrorInfo


INTERNAL = InternalFault("internal error; see the gateway's log")
"""Stands for a bug of ours, which the log tells of."""

Headers = list[tuple[bytes, bytes]]


def answer(error: DerenderError) -> tuple[int, Headers, bytes]:
    """Status, extra headers and body for a failure."""
    row = TABLE[error.code]
    if isinstance(error, RenderRefused):
        row = Row(error.status, error.type)
    elif isinstance(error, EngineRefused):
        row = Row(error.status, error.type, error.retry_after_s)
    headers = []
    if row.retry_after_s is not None:
        headers.append((b"retry-after", str(row.retry_after_s).encode()))
    encoded = body(row.code or row.status, row.type, error.message, error.param)
    return row.status, headers, encoded


def http_body(status: int, message: str) -> bytes:
    """Body for a failure that HTTP itself names: unknown path, wrong method."""
    return body(status, _HTTP_TYPES.get(status, "BadRequestError"), message)


def body(code: int | str, kind: str, message: str, param: str | None = None) -> bytes:
    """Encode one failure."""
    info = ErrorInfo(message=message, type=kind, param=param, code=code)
    return _encoder.encode(ErrorResponse(error=info))


def reason(error: DerenderError) -> str:
    """Label of a refusal in the metrics."""
    return error.code.value


_encoder = msgspec.json.Encoder()
