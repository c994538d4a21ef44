"""How aiohttp ends the body of an answer, which the engines' client relies on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from tests.gateway.scripted_engine import Call, Script, ScriptedEngine, die, first_event, hold, run


def _reading(
    script: Script, test: Callable[[aiohttp.ClientResponse], Coroutine[Any, Any, None]]
) -> None:
    """Run a test on an answer of which the head was read."""

    async def main() -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=1.0)
        async with ScriptedEngine(script) as engine, aiohttp.ClientSession(timeout=timeout) as http:
            response = await http.post(engine.url, data=b"{}")
            try:
                await test(response)
            finally:
                response.close()

    run(main())


def test_a_malformed_chunk_closes_the_connection_without_a_word() -> None:
    # Where this fails, the reader is told of it, and `Generation.notice_loss` may go.
    heard, gone = asyncio.Event(), asyncio.Event()

    async def malformed(call: Call) -> None:
        await first_event(call)
        await heard.wait()
        call.write(b"no length\r\n")
        await call.flush()
        await call.gone()
        gone.set()

    async def look(response: aiohttp.ClientResponse) -> None:
        assert await response.content.readany() == b"data: 1\n\n"
        connection = response.connection
        assert connection is not None
        reading = asyncio.create_task(response.content.readany())
        await asyncio.sleep(0)
        heard.set()
        await gone.wait()
        assert connection.closed
        assert response.connection is connection
        assert response.content.exception() is None
        assert not reading.done()
        # Closing the response wakes up who reads, with an error of the client's kind.
        response.close()
        with pytest.raises(aiohttp.ClientError):
            await reading

    _reading(malformed, look)


def test_an_open_connection_is_not_taken_for_a_lost_one() -> None:
    async def look(response: aiohttp.ClientResponse) -> None:
        assert await response.content.readany() == b"data: 1\n\n"
        assert response.connection is not None
        assert not response.connection.closed
        assert not response.closed

    _reading(hold, look)


def test_a_connection_that_breaks_off_fails_the_read() -> None:
    async def look(response: aiohttp.ClientResponse) -> None:
        with pytest.raises(aiohttp.ClientError):
            while await response.content.readany():
                pass
        assert response.content.exception() is not None

    _reading(die, look)


def test_silence_fails_the_read_by_an_error_of_its_own() -> None:
    async def look(response: aiohttp.ClientResponse) -> None:
        assert await response.content.readany() == b"data: 1\n\n"
        with pytest.raises(aiohttp.ServerTimeoutError):
            await response.content.readany()

    _reading(hold, look)


def test_the_end_of_the_body_is_told_then_or_at_once() -> None:
    told: list[str] = []

    async def look(response: aiohttp.ClientResponse) -> None:
        response.content.on_eof(lambda: told.append("then"))
        assert told == []
        body = b""
        while data := await response.content.readany():
            body += data
        assert body == b'data: {"n":1}\n\ndata: [DONE]\n\n'
        assert told == ["then"]
        response.content.on_eof(lambda: told.append("at once"))
        assert told == ["then", "at once"]
        assert response.closed

    async def slow(call: Call) -> None:
        call.begin_stream()
        await call.flush()
        await asyncio.sleep(0)
        call.chunk(b'data: {"n":1}\n\n')
        call.chunk(b"data: [DONE]\n\n")
        call.end_stream()

    _reading(slow, look)
