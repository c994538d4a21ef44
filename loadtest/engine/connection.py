"""One HTTP request on an ASGI socket, and the time table of what is sent on it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from loadtest.engine import transport

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = dict[str, str]

JSON = "application/json"


@dataclass
class Connection:
    """One request on its socket, which knows when the client is gone."""

    scope: Scope
    receive: Receive
    send: Send
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _alarm: asyncio.Future[None] | None = None

    async def body(self) -> bytes:
        """Read the whole request body."""
        parts = []
        more = True
        while more:
            message = await self.receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        return b"".join(parts)

    def headers(self) -> Headers:
        """Return the request headers; uvicorn gives their names in lower case."""
        return {str(key, "latin-1"): str(value, "latin-1") for key, value in self.scope["headers"]}

    def header(self, name: bytes) -> str | None:
        """Return a request header, or None when it is missing."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value, "latin-1")
        return None

    async def watch(self) -> None:
        """Wait until the client is gone, say so in `gone` and end a running `sleep`."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()
        if self._alarm is not None:
            _ring(self._alarm)

    async def sleep(self, seconds: float) -> bool:
        """Let time pass, at least one turn of the loop; tell whether the client is still there.

        Only one task may sleep at a time. A future and a timer are all that it takes: with hundreds
        of streams a task for each event would cost more than the rest of the event.
        """
        if seconds <= 0:
            await asyncio.sleep(0)
        elif not self.gone.is_set():
            loop = asyncio.get_running_loop()
            self._alarm = alarm = loop.create_future()
            timer = loop.call_later(seconds, _ring, alarm)
            try:
                await alarm
            finally:
                timer.cancel()
        return not self.gone.is_set()

    async def start(self, status: int, content_type: str, headers: Headers | None = None) -> None:
        """Send the status and headers."""
        pairs = {"content-type": content_type, **(headers or {})}
        encoded = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in pairs.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})

    async def write(self, body: bytes, *, more: bool = False) -> None:
        """Send a part of the response body, the last one unless there is `more`."""
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def respond(
        self, status: int, body: bytes, content_type: str = JSON, headers: Headers | None = None
    ) -> None:
        """Send a whole response."""
        length = {"content-length": str(len(body))}
        await self.start(status, content_type, {**length, **(headers or {})})
        await self.write(body)

    async def answer(self, status: int, body: Any, headers: Headers | None = None) -> None:
        """Send a whole JSON response."""
        await self.respond(status, msgspec.json.encode(body), headers=headers)

    async def break_off(self) -> None:
        """Close the connection behind what is written, and wait until it is closed."""
        transport.close(self.scope)
        await self.gone.wait()

    async def reset(self) -> None:
        """Reset the connection, and wait until it is closed."""
        transport.reset(self.scope)
        await self.watch()


def _ring(alarm: asyncio.Future[None]) -> None:
    if not alarm.done():
        alarm.set_result(None)


class Pace:
    """The time table of a generation, so that slow sends do not add up."""

    def __init__(self, tokens_per_second: float) -> None:
        """Start the clock; a pace of 0 never waits."""
        self._seconds_per_token = 1 / tokens_per_second if tokens_per_second else 0.0
        self._time = asyncio.get_running_loop().time
        self._start = self._time()
        self._tokens = 0

    def wait_for(self, tokens: int) -> float:
        """Return the seconds until the next `tokens` are due."""
        self._tokens += tokens
        if not self._seconds_per_token:
            return 0.0
        return self._start + self._tokens * self._seconds_per_token - self._time()
