"""Engines on real sockets that answer, or misbehave, as a test's script says."""

import asyncio
import contextlib
import gc
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

import uvloop

from gateway.engines.pool import Engines
from gateway.engines.settings import EngineSettings

DONE = b"data: [DONE]\n\n"
_DEADLINE_S = 30


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on the gateway's own kind of event loop, and check that it leaves no task."""

    async def checked() -> None:
        async with asyncio.timeout(_DEADLINE_S):
            await test
        for _ in range(10):  # What is cancelled or woken up takes a round to end.
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(checked())
    gc.collect()  # What was not closed warns, which is an error.


class Call:
    """One request, and the connection it came over."""

    def __init__(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.head = head
        self.body = b""
        self.reader = reader
        self.writer = writer

    async def read_body(self) -> None:
        for line in self.head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                self.body = await self.reader.readexactly(int(line.split(b":")[1]))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def answer(
        self, body: bytes, status: int = 200, kind: str = "application/json", **headers: str
    ) -> None:
        """A whole answer."""
        self._head(status, kind, {"content-length": str(len(body)), **headers})
        self.write(body)

    def begin_stream(self, kind: str = "text/event-stream; charset=utf-8") -> None:
        self._head(200, kind, {"transfer-encoding": "chunked"})

    def chunk(self, data: bytes) -> None:
        self.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self.write(b"0\r\n\r\n")

    def stream(self, *payloads: bytes) -> None:
        """A whole streamed answer."""
        self.begin_stream()
        for payload in payloads:
            self.chunk(b"data: " + payload + b"\n\n")
        self.chunk(DONE)
        self.end_stream()

    async def flush(self) -> None:
        await self.writer.drain()

    def reset(self) -> None:
        """Break the connection off, as an engine that dies."""
        ours = self.writer.get_extra_info("socket")
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """Close the connection neatly."""
        self.writer.close()

    async def gone(self) -> None:
        """Wait until the caller closes the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def _head(self, status: int, kind: str, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.write("\r\n".join([*lines, "", ""]).encode())


Script = Callable[[Call], Awaitable[None]]


async def well(call: Call) -> None:
    """Answer whatever is asked."""
    if call.head.startswith(b"GET /health"):
        call.answer(b"")
    elif b'"stream":true' in call.body:
        call.stream(b'{"n":1}', b'{"n":2}')
    else:
        call.answer(b'{"choices":[]}')


async def first_event(call: Call) -> None:
    """Begin a stream."""
    call.begin_stream()
    call.chunk(b"data: 1\n\n")
    await call.flush()


async def hold(call: Call) -> None:
    """Send an event, then nothing until the caller leaves."""
    await first_event(call)
    await call.gone()


async def die(call: Call) -> None:
    """Break off after an event."""
    await first_event(call)
    call.reset()


async def reset(call: Call) -> None:
    """Break off before the status."""
    call.reset()


async def full(call: Call) -> None:
    """Have no room."""
    call.answer(b"{}", 503)


class ScriptedEngine:
    """Serves a port of this machine by a script, which may be exchanged.

    Attributes:
        calls: Requests to generate, in the order they came.
        checks: Health checks that came.
        connections: Connections that were opened.
    """

    def __init__(self, script: Script = well) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.checks = 0
        self.connections = 0
        self.port = 0
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.vanish()

    async def listen(self) -> None:
        """Take connections, on the same port as before."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def vanish(self) -> None:
        """Refuse connections, and drop those there are."""
        if self._server is not None:
            self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that a request or a connection brings about."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _note(self) -> None:
        self._changed.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._note()
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            writer.close()
            self._note()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            call = Call(await reader.readuntil(b"\r\n\r\n"), reader, writer)
            if call.head.startswith(b"POST"):
                await call.read_body()
                self.calls.append(call)
            else:
                self.checks += 1
            self._note()
            await self.script(call)
            await call.flush()


class Client:
    """Started `Engines` over scripted engines."""

    def __init__(
        self, *engines: ScriptedEngine, urls: tuple[str, ...] = (), **options: Any
    ) -> None:
        urls = urls or tuple(engine.url for engine in engines)
        self.engines = Engines(EngineSettings(urls=urls, **options))

    async def __aenter__(self) -> Engines:
        await self.engines.start()
        return self.engines

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.engines.close()
        if kind is None:
            assert [engine.in_flight for engine in self.engines.stats().engines] == [0] * len(
                self.engines.stats().engines
            )
