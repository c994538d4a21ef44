"""Answers of the routes that Litestar serves."""

from typing import Any

import msgspec
from litestar import Response

from core.protocol.errors import DerenderError
from gateway.http import errors

JSON = "application/json"

_encoder = msgspec.json.Encoder()


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
