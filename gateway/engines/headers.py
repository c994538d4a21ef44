"""Headers of a request to an engine."""

import re
from collections.abc import Mapping

from gateway.engines.settings import EngineSettings

_PASSED_ON = (
    b"traceparent",
    b"tracestate",
    b"baggage",
    b"x-data-parallel-rank",
    b"x-session-id",
    b"x-vllm-priority",
)
"""Tracing, and what vLLM 0.33 reads of a request's headers to place and order it."""

_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

_FIXED = [
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
    # Token IDs are read as they come; compressing them would cost both sides.
    ("accept-encoding", "identity"),
    ("user-agent", "derender-gateway"),
]


def engine_headers(
    request_headers: Mapping[bytes, bytes], engine_request_id: str, settings: EngineSettings
) -> list[tuple[str, str]]:
    """What an engine is sent on behalf of a caller.

    Values that are no UTF-8 or hold control characters are left out.

    Args:
        request_headers: The caller's, with names in lower case.
        engine_request_id: Sent as `x-request-id`; vLLM names its own request after it.
        settings: Whose authorization goes to the engine.
    """
    headers = [*_FIXED]
    _add(headers, "x-request-id", engine_request_id)
    for name in _PASSED_ON:
        if (value := _text(request_headers.get(name))) is not None:
            _add(headers, name.decode(), value)
    own = settings.forward_authorization and _text(request_headers.get(b"authorization"))
    if own:
        _add(headers, "authorization", own)
    elif settings.api_key:
        _add(headers, "authorization", f"Bearer {settings.api_key}")
    return headers


def _add(headers: list[tuple[str, str]], name: str, value: str) -> None:
    if not _UNSENDABLE.search(value):
        headers.append((name, value))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
