"""Server-sent events of OpenAI's APIs."""

import msgspec

DONE = b"data: [DONE]\n\n"
"""Ends a stream."""

to_json = msgspec.json.Encoder().encode


def event(payload: bytes) -> bytes:
    """One event; JSON has no line breaks of its own."""
    return b"data: %b\n\n" % payload
