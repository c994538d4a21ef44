"""What an engine says when it does not answer."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from core.protocol.errors import EngineFailed, EngineRefused

_NOT_FOUND = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_LONGEST_QUOTE = 200
_LONGEST_SECONDS = 9


def refusal(
    engine_url: str, status: int, body: bytes, retry_after: str | None, *, callers_key: bool
) -> EngineRefused | EngineFailed:
    """The error an answer with a status other than 200 stands for.

    Statuses 4xx and 503 are the caller's to see, but for those that tell of a wrong URL, model name
    or key towards the engine: these are the gateway's settings. Any other is a failure of the
    engine.

    Args:
        engine_url: For the message, without credentials.
        status: HTTP status.
        body: OpenAI-shaped, FastAPI's `{"detail": ...}`, or anything.
        retry_after: The header of that name.
        callers_key: The engine was sent the caller's own authorization.
    """
    said = _Said(body)
    sentence = f"the engine answered with status {status}" + (f": {said.text}" if said.text else "")
    if not _is_the_callers(status, callers_key):
        return EngineFailed(f"engine {engine_url}: {sentence}")
    return EngineRefused(
        said.text if said.openai_shaped else sentence,
        said.param,
        status=status,
        type=said.type or _type(status),
        retry_after_s=_seconds(retry_after),
    )


def _is_the_callers(status: int, callers_key: bool) -> bool:
    """Whether a caller can do something about it."""
    if status in _DENIED:
        return callers_key
    if status in _NOT_FOUND:
        return False
    return 400 <= status < 500 or status == HTTPStatus.SERVICE_UNAVAILABLE


class _Said:
    """Message, type and param found in a body of an engine."""

    def __init__(self, body: bytes) -> None:
        self.type: str | None = None
        self.param: str | None = None
        self.openai_shaped = False
        try:
            decoded = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            decoded = None
        quoted = body.decode(errors="replace").strip()[:_LONGEST_QUOTE]
        self.text = self._find(decoded) or quoted

    def _find(self, body: Any) -> str | None:
        if not isinstance(body, dict):
            return None
        error = body.get("error")
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            self.openai_shaped = True
            self.type, self.param = _string(error.get("type")), _string(error.get("param"))
            return _string(error["message"])
        return _string(error) or _detail(body.get("detail"))


def _detail(detail: Any) -> str | None:
    """FastAPI's: a sentence, or a list of what is wrong where."""
    if isinstance(detail, list):
        return "; ".join(_faults(detail))
    return _string(detail)


def _faults(detail: list[Any]) -> Iterator[str]:
    for fault in detail:
        if isinstance(fault, dict) and isinstance(fault.get("msg"), str):
            place = fault.get("loc")
            path = ".".join(map(str, place)) if isinstance(place, list) else ""
            yield f"{path}: {fault['msg']}" if path else fault["msg"]


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _type(status: int) -> str:
    """As vLLM names them: `NotFoundError`."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        return "BadRequestError" if status < 500 else "ServiceUnavailableError"
    return "".join(word.capitalize() for word in phrase.replace("-", " ").split()) + "Error"


def _seconds(retry_after: str | None) -> int | None:
    """None for a date too: the caller's clock may differ from the engine's."""
    if retry_after is None or len(retry_after) > _LONGEST_SECONDS or not retry_after.isdecimal():
        return None
    return int(retry_after)
