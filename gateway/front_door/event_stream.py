"""An answer by server-sent events."""

import asyncio
import contextlib
from typing import Any

from litestar.types import Send

from core.protocol.errors import TimedOut
from gateway.http import errors
from gateway.http.deadlines import Watchdog

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
        self._watchdog = Watchdog(write_timeout_s)
        self._cut = False

    async def start(self, headers: errors.Headers) -> None:
        """Send the status and these headers, beside those that keep proxies from holding back.

        Raises:
            TimedOut: The caller read nothing for too long.
        """
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
        await self._write(start)

    async def write(self, events: bytes) -> None:
        """Send events; waits while the caller does not read.

        Raises:
            TimedOut: The caller read nothing for too long.
        """
        await self._write({"type": "http.response.body", "body": events, "more_body": True})

    async def fail(self, body: bytes) -> None:
        """Tell of a failure in the form OpenAI's clients understand, and end.

        Args:
            body: JSON of the failure, as it would be answered.
        """
        with contextlib.suppress(TimedOut):
            event = b"data: %b\n\n" % body
            await self._write_last(event + _DONE)

    async def end(self) -> None:
        """End the answer.

        Raises:
            TimedOut: The caller read nothing for too long.
        """
        await self._write_last(b"")

    def close(self) -> None:
        """Let go of the request's task."""
        self._watchdog.close()

    async def _write_last(self, body: bytes) -> None:
        await self._write({"type": "http.response.body", "body": body, "more_body": False})

    async def _write(self, message: Any) -> None:
        if self._cut:
            return
        try:
            await self._watchdog.watch(self._send(message))
        except TimedOut:
            self._cut = True
            await _cut_off(self._send)
            limit = f"{self._write_timeout_s:g} s (--write-timeout)"
            raise TimedOut(f"the caller read nothing for {limit}") from None


async def _cut_off(send: Send) -> None:
    """Close the caller's connection without waiting for what is left unread to be read.

    ASGI has no message for it, and uvicorn closes a connection only once its buffer is empty,
    which for a caller who does not read is never. Its `send` is a method of what holds the
    transport (uvicorn 0.50 and 0.51).
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is not None:
        transport.abort()
        # Have uvicorn hear of it before the answer that was not completed returns.
        await asyncio.sleep(0)
