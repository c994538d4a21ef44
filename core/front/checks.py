"""Checks of what an engine says that go beyond its protocol."""

from core.protocol.errors import EngineFailed, InternalFault
from core.protocol.generate import GenerateResponse, StreamChoice

_FAILED = "error"


def on_one_line(data: bytes) -> bytes:
    """JSON of an engine without line breaks: parts of it go into server-sent events as they are.

    Raises:
        UnicodeDecodeError: It is not UTF-8, which is looked at nowhere else for such parts.
    """
    if not data.isascii():
        data.decode()
    if b"\n" in data or b"\r" in data:
        return data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


def check_whole(response: GenerateResponse, samples: int) -> None:
    """Check that a complete generation has each of its choices, in order.

    Raises:
        EngineFailed: It has others.
        InternalFault: One of them failed.
    """
    found = [choice.index for choice in response.choices]
    if len(found) != samples:
        raise EngineFailed(f"the engine sent {len(found)} choices of {samples}")
    if found != list(range(samples)):
        raise EngineFailed(f"the engine sent choices {found[:8]}, which are not in order")
    for choice in response.choices:
        check_part(choice)


def check_part(part: StreamChoice) -> None:
    """Check one choice of a chunk, or a complete one.

    Raises:
        EngineFailed: It has not one logprob for each token.
        InternalFault: The engine says that it failed.
    """
    if part.finish_reason == _FAILED:
        raise InternalFault("the engine failed while it generated")
    content = part.logprobs.content if part.logprobs else None
    tokens = len(part.token_ids or ())
    if content is not None and len(content) != tokens:
        raise EngineFailed(f"the engine sent {len(content)} logprobs of {tokens} tokens")
