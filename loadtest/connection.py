"""One HTTP request on an ASGI socket, and the time table of what is sent on it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass
class Connection:
    """One request on its socket, which knows when the client is gone."""

    scope: Scope
    receive: Receive
    send: Send
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def body(self) -> bytes:
        """Read the whole request body."""
        parts = []
        more = True
        while more:
            message = await self.receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        return b"".join(parts)

    def header(self, name: bytes) -> str | None:
        """Return a request header, or None when it is missing."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value, "latin-1")
        return None

    async def watch(self) -> None:
        """Wait until the client is gone and say so in `gone`."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    async def sleep(self, seconds: float) -> bool:
        """Let time pass, at least one turn of the loop; tell whether the client is still there."""
        if seconds <= 0:
            await asyncio.sleep(0)
        elif not self.gone.is_set():
            waiter = asyncio.ensure_future(self.gone.wait())
            await asyncio.wait([waiter], timeout=seconds)
            waiter.cancel()
        return not self.gone.is_set()

    async def start(self, status: int, content_type: str) -> None:
        """Send the status and headers."""
        headers = [(b"content-type", content_type.encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, body: bytes, *, more: bool = False) -> None:
        """Send a part of the response body, the last one unless there is `more`."""
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def answer(self, status: int, body: Any) -> None:
        """Send a whole JSON response."""
        await self.start(status, "application/json")
        await self.write(msgspec.json.encode(body))


class Pace:
    """The time table of a generation, so that slow sends do not add up."""

    def __init__(self, tokens_per_second: float) -> None:
        """Start the clock; a pace of 0 never waits."""
        self._seconds_per_token = 1 / tokens_per_second if tokens_per_second else 0.0
        self._start = asyncio.get_running_loop().time()
        self._tokens = 0

    def wait_for(self, tokens: int) -> float:
        """Return the seconds until the next `tokens` are due."""
        self._tokens += tokens
        if not self._seconds_per_token:
            return 0.0
        due = self._start + self._tokens * self._seconds_per_token
        return due - asyncio.get_running_loop().time()
