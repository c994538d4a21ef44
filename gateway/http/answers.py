"""Whole JSON answers, by plain ASGI and by Litestar."""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Response
from litestar.types import Send

from core.protocol.errors import DerenderError
from gateway.http import errors

JSON = "application/json"

_encoder = msgspec.json.Encoder()


async def send_answer(send: Send, status: int, extra: errors.Headers, body: bytes) -> None:
    """Send a whole JSON answer with extra headers."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *extra,
    ]
    start: Any = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def refuse_method(send: Send, method: str, allowed: Sequence[str]) -> None:
    """Answer a method that a path has not, OPTIONS among them."""
    allow = [(b"allow", ", ".join(sorted({"OPTIONS", *allowed})).encode())]
    if method == "OPTIONS":
        start: Any = {"type": "http.response.start", "status": 204, "headers": allow}
        await send(start)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    body = errors.http_body(405, f"{method} is not allowed here; use {' or '.join(allowed)}")
    await send_answer(send, 405, allow, b"" if method == "HEAD" else body)


def json_answer(
    value: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response[bytes]:
    """Encode a value as a JSON answer."""
    return Response(_encoder.encode(value), status_code=status, media_type=JSON, headers=headers)


def refusal(error: DerenderError) -> Response[bytes]:
    """An OpenAI-shaped error answer."""
    status, headers, body = errors.answer(error)
    named = {name.decode(): value.decode() for name, value in headers}
    return Response(body, status_code=status, media_type=JSON, headers=named)
