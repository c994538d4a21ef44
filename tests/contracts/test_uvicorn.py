"""What a gateway changes in uvicorn, and what it reaches behind ASGI."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvicorn
import uvloop

from core.protocol.errors import TimedOut
from gateway.front_door.event_stream import EventStream
from gateway.worker import _Server

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PART = b"x" * (4 << 20)
_DEADLINE_S = 30

App = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
Test = Callable[[int, list[Any]], Coroutine[Any, Any, None]]
"""What is done beside a server: given its port, and the signal handlers before it was started."""


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _serving(app: App, test: Test, kind: type[uvicorn.Server] = _Server) -> None:
    """Run a test beside a server, both on a gateway's kind of loop."""

    async def main() -> None:
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server, before = kind(config), _handlers()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    await test(listener.getsockname()[1], before)
            finally:
                server.should_exit = True
                await serving
        assert _handlers() == before

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def _handlers() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


async def _answered(port: int, _: list[Any]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    assert (await reader.readline()).startswith(b"HTTP/1.1 204")
    writer.close()
    await writer.wait_closed()


def test_signals_are_left_alone_while_it_serves() -> None:
    async def look(port: int, before: list[Any]) -> None:
        await _answered(port, before)
        assert _handlers() == before

    _serving(_hello, look)


def test_uvicorn_takes_signals_where_it_is_not_kept_from_it() -> None:
    async def look(port: int, before: list[Any]) -> None:
        await _answered(port, before)
        assert all(one != other for one, other in zip(_handlers(), before, strict=True))

    _serving(_hello, look, uvicorn.Server)


def test_serving_goes_through_the_method_that_is_overridden() -> None:
    entered = []

    class Noted(_Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            with super().capture_signals():
                entered.append(self)
                yield

    _serving(_hello, _answered, Noted)
    assert len(entered) == 1


def test_send_is_a_method_of_what_holds_the_transport() -> None:
    found: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append(send.__self__.transport)
        await _hello(scope, receive, send)

    _serving(app, _answered)
    assert all(callable(transport.abort) for transport in found)
    assert found


def test_a_caller_who_does_not_read_is_cut_off() -> None:
    cut = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        stream = EventStream(send, 0.2)
        await stream.start([])
        try:
            while True:
                await stream.write(PART)
        except TimedOut:
            cut.set()
        finally:
            stream.close()

    async def never_reads(port: int, _: list[Any]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(REQUEST)
        # The buffers of both ends fill up; then the connection breaks off under the rest.
        await reader.readline()
        await cut.wait()
        with contextlib.suppress(ConnectionResetError):
            rest = await reader.read()
            assert not rest.endswith(b"0\r\n\r\n"), "the answer is whole"
        writer.close()

    _serving(app, never_reads)
