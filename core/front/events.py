"""Server-sent events, and the JSON members answers share."""

import msgspec

DONE = b"data: [DONE]\n\n"

json_text = msgspec.json.Encoder().encode
"""JSON of a string."""


def event(payload: bytes) -> bytes:
    """One event; JSON has no line breaks of its own."""
    return b"data: %b\n\n" % payload


def usage_member(prompt_tokens: int, completion_tokens: int) -> bytes:
    """The counts of a usage object, without its braces."""
    return b'"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d' % (
        prompt_tokens,
        prompt_tokens + completion_tokens,
        completion_tokens,
    )


def completion_details(reasoning_tokens: int) -> bytes:
    """The detail of a usage object that a reasoning parser adds, with a comma before it."""
    return b',"completion_tokens_details":{"reasoning_tokens":%d}' % reasoning_tokens
