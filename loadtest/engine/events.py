"""What every answer of the scripted engine offers: a whole body, or server-sent events in order."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import msgspec


class Event(NamedTuple):
    """The bytes of one event, and the tokens of a choice that pass before it is due."""

    data: bytes
    tokens: int = 0


class Answer(Protocol):
    """The answer to one generate request."""

    @property
    def steps(self) -> int:
        """The tokens of the longest choice."""

    def whole(self) -> tuple[int, bytes]:
        """Return the status and JSON body of an answer that does not stream."""

    def events(self) -> Iterator[Event]:
        """Yield every event of a stream."""


def frame(payload: bytes) -> bytes:
    """Return one server-sent event that carries `payload`."""
    return b"data: " + payload + b"\n\n"


def event_of(body: Any) -> Event:
    """Return the event of a body, due at once."""
    return Event(frame(msgspec.json.encode(body)))


DONE = Event(frame(b"[DONE]"))
"""The event that ends every stream."""
