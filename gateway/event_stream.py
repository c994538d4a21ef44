"""An answer by server-sent events."""

import contextlib
from typing import Any

from litestar.types import Send

from core.errors import TimedOut
from gateway import errors
from gateway.deadline import within

_DONE = b"data: [DONE]\n\n"


class EventStream:
    """Writes events to one caller.

    Attributes:
        started: The status went out, so a failure can only be told by an event.
    """

    def __init__(self, send: Send, write_timeout_s: float) -> None:
        """Write nothing yet.

        Args:
            send: The ASGI send function.
            write_timeout_s: How long a caller may leave events unread.
        """
        self.started = False
        self._send = send
        self._write_timeout_s = write_timeout_s

    async def start(self, headers: errors.Headers) -> None:
        """Send the status and these headers, beside those that keep proxies from holding back."""
        self.started = True
        start: Any = {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
                *headers,
            ],
        }
        await self._send(start)

    async def write(self, events: bytes) -> None:
        """Send events; waits while the caller does not read.

        Raises:
            core.errors.TimedOut: The caller read nothing for too long.
        """
        await within(self._write_timeout_s, self._body(events, more=True))

    async def fail(self, body: bytes) -> None:
        """Tell of a failure in the form OpenAI's clients understand, and end.

        Args:
            body: JSON of the failure, as it would be answered.
        """
        with contextlib.suppress(TimedOut):
            event = b"data: %b\n\n" % body
            await within(self._write_timeout_s, self._body(event + _DONE, more=False))

    async def end(self) -> None:
        """End the answer."""
        await self._body(b"", more=False)

    async def _body(self, body: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
