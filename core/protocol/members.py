"""Reading one member of a body: its JSON decoded, or refused in one sentence with its path."""

import re
from typing import TypeVar

import msgspec

from core.protocol.errors import BadRequest

T = TypeVar("T")

_AT = re.compile(r"(.*?)(?: - at `(?:key in )?\$?([^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_TYPE = re.compile(r"`(\w+(?: \| \w+)*)`")
_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "a boolean",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def decode(decoder: msgspec.json.Decoder[T], raw: bytes, member: str) -> T:
    """Decode one member of a body.

    Args:
        decoder: Decoder of the member's type.
        raw: The member's JSON.
        member: The member's name, the start of every path in a message.

    Raises:
        BadRequest: The member is missing, or its JSON is not of the type.
    """
    if not raw:
        raise BadRequest(f"`{member}` is required.", member)
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise refusal(str(error), member) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"`{member}` is not valid JSON: {error}", member) from None


def refusal(reason: str, member: str) -> BadRequest:
    """Turn a msgspec reason into one sentence that names the path of the field."""
    match = _AT.fullmatch(reason)
    text, path = match.groups() if match else (reason, None)
    param = member + (path or "")
    if missing := _MISSING.fullmatch(text):
        param = f"{param}.{missing[1]}".lstrip(".")
        return BadRequest(f"`{param}` is required.", param)
    text = _TYPE.sub(_type_name, text)
    return BadRequest(f"`{param}`: {text[:1].lower()}{text[1:]}.", param or None)


def _type_name(match: re.Match[str]) -> str:
    return " or ".join(_TYPES.get(name, name) for name in match[1].split(" | "))
