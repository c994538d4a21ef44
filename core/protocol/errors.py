"""What can go wrong, and whose fault it is.

    DerenderError
    +- BadRequest            the caller's fault: the body must change before it can succeed
    |  +- UnknownCheckpoint  the stream behind a checkpoint is not held; send the whole state
    |  +- UnknownModel       the model named is not served here
    |  +- BodyTooLarge       more bytes than the server reads
    |  +- RenderRefused      vLLM's renderer refuses, with a status of its own
    +- InternalFault         ours: the same body may succeed elsewhere or later
       +- ContextMissing     a shard must be sent a context again; never leaves the pool
       +- ShardUnavailable   no shard can take the work now
       +- ShardLostTwice     two shards ended while they worked on the call
       +- StreamMissing      a shard does not hold a live stream; never leaves the gateway
       +- EngineRefused      the engine answered with an error of its own
       +- EngineUnreachable  no engine takes the request
       +- EngineFailed       the engine broke off, or sent what is no answer
       +- EngineTimedOut     the engine sent nothing for too long
       +- TimedOut           the answer took longer than a request may
       +- Overloaded         the bounded queue of work is full

Every class carries a stable `FaultCode`; `gateway.http.errors` alone turns one into an HTTP status
and a body. Errors cross a pipe as `core.protocol.wire.Fault`, never as pickled exceptions.
"""

from enum import StrEnum

_LONGEST_MESSAGE = 1000
_LONGEST_PARAM = 200


class FaultCode(StrEnum):
    """The kinds of failure that cross a process boundary."""

    INVALID_REQUEST = "invalid_request"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"
    BODY_TOO_LARGE = "body_too_large"
    RENDER_REFUSED = "render_refused"
    INTERNAL = "internal"
    CONTEXT_MISSING = "context_missing"
    SHARD_UNAVAILABLE = "shard_unavailable"
    SHARD_LOST_TWICE = "shard_lost_twice"
    STREAM_MISSING = "stream_missing"
    ENGINE_REFUSED = "engine_refused"
    ENGINE_UNREACHABLE = "engine_unreachable"
    ENGINE_FAILED = "engine_failed"
    ENGINE_TIMED_OUT = "engine_timed_out"
    OVERLOADED = "overloaded"
    TIMED_OUT = "timed_out"


class DerenderError(Exception):
    """Root of all failures the project reports to a caller.

    Attributes:
        message: One sentence for the caller; names the field and the bound where there is one.
        param: Path of the offending field in the request body
        (`generate_response.choices[0].index`).
    """

    code = FaultCode.INTERNAL

    def __init__(self, message: str, param: str | None = None) -> None:
        """Keep the sentence and the field it is about.

        Both may quote a caller: what cannot be printed is escaped, and what is long is cut.
        """
        self.message = _presentable(message, _LONGEST_MESSAGE)
        self.param = param and _presentable(param, _LONGEST_PARAM)
        super().__init__(self.message)


class BadRequest(DerenderError):
    """The body breaks the protocol or a bound."""

    code = FaultCode.INVALID_REQUEST


class UnknownModel(BadRequest):
    """The model named in the body is not served here."""

    code = FaultCode.UNKNOWN_MODEL


class UnknownCheckpoint(BadRequest):
    """No live stream answers to the checkpoint: send the full state instead."""

    code = FaultCode.UNKNOWN_CHECKPOINT


class BodyTooLarge(BadRequest):
    """The body has more bytes than the server reads."""

    code = FaultCode.BODY_TOO_LARGE


class RenderRefused(BadRequest):
    """vLLM's renderer refuses the request.

    Attributes:
        status: The HTTP status vLLM's own server answers with.
        type: The error type in its body.
    """

    code = FaultCode.RENDER_REFUSED

    def __init__(self, message: str, param: str | None, status: int, type: str) -> None:
        """Keep what vLLM said, word for word."""
        super().__init__(message, param)
        self.message = message
        self.status = status
        self.type = type


class InternalFault(DerenderError):
    """The server failed; the request may be fine."""

    code = FaultCode.INTERNAL


class ContextMissing(InternalFault):
    """A shard does not hold a context named by digest; the pool sends the bytes and tries again."""

    code = FaultCode.CONTEXT_MISSING

    def __init__(self) -> None:
        """Say so; no caller sees it."""
        super().__init__("the shard does not hold the context")


class ShardUnavailable(InternalFault):
    """No shard can take the work now."""

    code = FaultCode.SHARD_UNAVAILABLE


class ShardLostTwice(InternalFault):
    """Two shards ended while they worked on the call; it is not tried again."""

    code = FaultCode.SHARD_LOST_TWICE


class StreamMissing(InternalFault):
    """A shard does not hold the live stream a call names; the gateway opens it again."""

    code = FaultCode.STREAM_MISSING

    def __init__(self) -> None:
        """Say so; no caller sees it."""
        super().__init__("the shard does not hold the stream")


class EngineRefused(InternalFault):
    """The engine answers with an error of its own, which the caller gets.

    Attributes:
        status: The engine's HTTP status.
        type: The error type in its body.
        retry_after_s: Its `Retry-After`, None where it names none.
    """

    code = FaultCode.ENGINE_REFUSED

    def __init__(
        self,
        message: str,
        param: str | None = None,
        *,
        status: int,
        type: str,
        retry_after_s: int | None = None,
    ) -> None:
        """Keep what the engine said."""
        super().__init__(message, param)
        self.status = status
        self.type = type
        self.retry_after_s = retry_after_s


class EngineUnreachable(InternalFault):
    """No engine takes the request."""

    code = FaultCode.ENGINE_UNREACHABLE


class EngineFailed(InternalFault):
    """The engine broke off, or sent what is no answer."""

    code = FaultCode.ENGINE_FAILED


class EngineTimedOut(InternalFault):
    """The engine sent nothing for longer than it may."""

    code = FaultCode.ENGINE_TIMED_OUT


class TimedOut(InternalFault):
    """The answer took longer than a request may."""

    code = FaultCode.TIMED_OUT


class Overloaded(InternalFault):
    """The bounded queue of work is full."""

    code = FaultCode.OVERLOADED


def _presentable(text: str, longest: int) -> str:
    if len(text) > longest:
        text = text[: longest - 1] + "\u2026"
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else f"\\x{ord(character):02x}" for character in text
    )
