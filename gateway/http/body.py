"""Reading a request body: size, kind, JSON, and the envelope, each refused in one sentence."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from core.protocol.envelope import Envelope, envelope_decoder
from core.protocol.errors import BadRequest, BodyTooLarge

Receive = Callable[[], Awaitable[Any]]

_NAMES = {
    "bool": "a boolean",
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "null": "null",
    "object": "an object",
    "array": "an array",
}
_EXPECTED = re.compile(r"Expected `([^`]+)`, got `([^`]+)`(?: - at `\$\.?([^`]*)`)?")
_AT_BYTE = re.compile(r"^JSON is malformed: (.*?) \(byte (\d+)\)$")


class ClientGone(Exception):
    """The caller closed the connection before the body was complete."""


async def read(headers: Mapping[bytes, bytes], receive: Receive, max_bytes: int) -> bytes:
    """Read the whole body.

    The declared length is checked before anything is read. What is left of a body that is too long
    is discarded by the HTTP server after the answer, so the caller can still read it.

    Raises:
        BodyTooLarge: More than `max_bytes`.
        ClientGone: The caller left.
    """
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(f"has {int(declared)} bytes", max_bytes)
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        first: bytes = message.get("body", b"")
        if len(first) > max_bytes:
            raise _too_large("is longer", max_bytes)
        return first
    chunks, size = [], 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise _too_large("is longer", max_bytes)
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)
        message = await receive()


def check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that does not say it is JSON, and JSON that was compressed."""
    encoding = headers.get(b"content-encoding", b"identity")
    if encoding.lower() != b"identity":
        shown = encoding.decode("latin-1")
        raise BadRequest(f"the Content-Encoding is {shown!r}; send the body as it is")
    declared = headers.get(b"content-type")
    if declared == b"application/json":
        return
    if declared is None:
        raise BadRequest("the Content-Type header is missing; send application/json")
    kind = declared.split(b";", 1)[0].strip().lower()
    if kind != b"application/json":
        shown = kind.decode("latin-1")
        raise BadRequest(f"the Content-Type is {shown!r}; send application/json")


def open_envelope(body: bytes) -> Envelope:
    """Decode the first level of a body.

    Raises:
        BadRequest: The body is not JSON, not an object, or a member has the wrong type.
    """
    try:
        if not body.isascii():
            body.decode()
        return envelope_decoder.decode(body)
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not valid UTF-8 at byte {error.start}") from None
    except msgspec.ValidationError as error:
        raise explain(error) from None
    except msgspec.DecodeError as error:
        raise BadRequest(_syntax(str(error), body)) from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def explain(error: msgspec.ValidationError) -> BadRequest:
    """Turn msgspec's complaint into a sentence and the path of the member."""
    match = _EXPECTED.match(str(error))
    if match is None:
        return BadRequest(str(error))
    expected, got, path = match.groups()
    names = " or ".join(_NAMES.get(name.strip(), name.strip()) for name in expected.split("|"))
    subject = f"`{path}`" if path else "the body"
    return BadRequest(f"{subject} must be {names}, not {_NAMES.get(got, got)}", path or None)


def _syntax(complaint: str, body: bytes) -> str:
    match = _AT_BYTE.match(complaint)
    if match is not None:
        return f"the body is not valid JSON: {match[1]} at byte {match[2]}"
    if not body.strip():
        return "the body is empty; send a JSON object"
    what = "a value is cut short before" if body.rstrip().endswith(b"}") else "it ends too early at"
    return f"the body is not valid JSON: {what} byte {len(body)}"


def _too_large(what: str, max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body {what}; at most {max_bytes} bytes are read (--max-body-bytes)")
