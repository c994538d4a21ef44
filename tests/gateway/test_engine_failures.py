"""Engines that fail, stall and vanish."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from core.protocol.errors import (
    DerenderError,
    EngineFailed,
    EngineTimedOut,
    EngineUnreachable,
)
from gateway.engines.engine import Ending
from gateway.engines.pool import Engines
from tests.gateway.engine_calls import (
    STREAM,
    failure,
    one_shot,
    only,
    outcomes,
    read,
    stream,
    with_engine,
)
from tests.gateway.scripted_engine import (
    DONE,
    Call,
    Client,
    ScriptedEngine,
    first_event,
    reset,
    run,
    well,
)


def test_an_engine_that_refuses_connections_is_unreachable() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        await engine.vanish()
        assert engine.url in await failure(engines, EngineUnreachable)
        assert outcomes(only(engines)) == {Ending.UNREACHABLE: 2}
        assert engines.stats().retries == 1
        assert not only(engines).up

    with_engine(well, test)


def test_a_name_that_is_none_is_unreachable() -> None:
    async def main() -> None:
        async with Client(urls=("http://no-such-host.invalid:1",)) as engines:
            assert "no-such-host.invalid" in await failure(engines, EngineUnreachable)

    run(main())


def test_a_connection_reset_before_the_status_is_tried_once_more() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        assert "before it answered" in await failure(engines, EngineFailed)
        assert len(engine.calls) == 2
        assert outcomes(only(engines)) == {Ending.FAILED: 2}
        assert engines.stats().retries == 1

    with_engine(reset, test)


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_stale_connection_is_no_failure(how: str) -> None:
    async def script(call: Call) -> None:
        if engine_calls and engine_calls[0].writer is call.writer:
            getattr(call, how)()
        else:
            engine_calls.append(call)
            await well(call)

    engine_calls: list[Call] = []

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        await read(engines)
        await read(engines)
        assert len(engine.calls) == 3
        assert outcomes(only(engines)) == {Ending.FINISHED: 2}
        assert engines.stats().retries == 0

    with_engine(script, test)


def test_a_restarted_engine_is_asked_over_a_new_connection() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        await read(engines)
        await engine.vanish()
        await engine.listen()
        await read(engines)
        assert outcomes(only(engines)) == {Ending.FINISHED: 2}

    with_engine(well, test)


@pytest.mark.parametrize("body", [STREAM, b'"%s"' % (b"x" * (32 << 20))])
def test_an_engine_that_never_answers_times_out(body: bytes) -> None:
    async def script(call: Call) -> None:
        await asyncio.Event().wait()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        with pytest.raises(EngineTimedOut, match=r"sent nothing for 0.2 s \(--engine-idle-timeout"):
            await stream(engines, body)
        assert outcomes(only(engines)) == {Ending.TIMED_OUT: 1}
        assert engine.connections == 1

    with_engine(script, test, idle_timeout_s=0.2)


def test_an_engine_that_never_reads_times_out() -> None:
    async def main() -> None:
        release = asyncio.Event()

        async def ignore(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await release.wait()
            writer.transport.abort()

        server = await asyncio.start_server(ignore, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with Client(urls=(f"http://127.0.0.1:{port}",), idle_timeout_s=0.3) as engines:
            with pytest.raises(EngineTimedOut, match="--engine-idle-timeout"):
                await stream(engines, b'"%s"' % (b"x" * (64 << 20)))
        release.set()
        server.close()
        await server.wait_closed()

    run(main())


def test_an_engine_that_accepts_no_connection_times_out() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        # Shaking hands belongs to connecting, and a plain server waits for a request instead.
        url = engine.url.replace("http://", "https://")
        async with Client(urls=(url,), connect_timeout_s=0.1) as engines:
            message = await failure(engines, EngineTimedOut)
            assert "within 0.1 s (--engine-connect-timeout)" in message
            assert outcomes(only(engines)) == {Ending.TIMED_OUT: 2}
            assert not only(engines).up

    with_engine(well, test)


@pytest.mark.parametrize("garbage", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\0" * 9000])
def test_garbage_for_a_status_line_is_a_failure(garbage: bytes) -> None:
    async def script(call: Call) -> None:
        call.write(garbage)
        await call.flush()
        await call.gone()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        assert "no HTTP answer" in await failure(engines, EngineFailed)
        assert len(engine.calls) == 1

    with_engine(script, test)


def broken_stream(
    go_on: Callable[[Call], None], kind: type[DerenderError], match: str, **options: Any
) -> None:
    """A stream that sends one event, then goes on as told."""

    async def script(call: Call) -> None:
        await first_event(call)
        await read_first.wait()
        go_on(call)
        await call.flush()
        await call.gone()

    read_first = asyncio.Event()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        with await stream(engines) as generation:
            assert await generation.events() == [b"1"]
            read_first.set()
            with pytest.raises(kind, match=match) as caught:
                await generation.events()
            assert engine.url in caught.value.message
            assert not generation.done
            assert only(engines).in_flight == 0
        outcome = Ending.TIMED_OUT if kind is EngineTimedOut else Ending.FAILED
        assert outcomes(only(engines)) == {outcome: 1}
        assert only(engines).up

    with_engine(script, test, **options)


def test_a_stream_that_is_reset_breaks_off() -> None:
    broken_stream(Call.reset, EngineFailed, "broke off")


def test_a_stream_that_is_closed_breaks_off() -> None:
    broken_stream(Call.close, EngineFailed, "broke off")


def test_a_stream_with_garbage_breaks_off() -> None:
    broken_stream(lambda call: call.write(b"no chunk\r\n"), EngineFailed, "broke off")


def test_a_stream_may_not_end_inside_an_event() -> None:
    def go_on(call: Call) -> None:
        call.chunk(b"data: 2\n")
        call.end_stream()

    broken_stream(go_on, EngineFailed, "inside an event")


def test_a_stream_that_stalls_times_out() -> None:
    broken_stream(lambda _: None, EngineTimedOut, "--engine-idle-timeout", idle_timeout_s=0.2)


def test_an_event_may_not_grow_without_bound() -> None:
    broken_stream(
        lambda call: call.chunk(b"x" * 300_000), EngineFailed, "65536 bytes", max_event_bytes=65536
    )


def test_a_stream_reset_at_any_byte_breaks_off_and_leaks_nothing() -> None:
    whole = (
        b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    head = len(whole)
    whole += b"9\r\ndata: 1\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    end = 0

    async def script(call: Call) -> None:
        call.write(whole[:end])
        await call.flush()
        call.close()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        nonlocal end
        for end in range(1, len(whole)):
            try:
                with await stream(engines) as generation:
                    while await generation.events() is not None:
                        pass
                    # Only what follows the event may be missing.
                    assert generation.done
                    assert end >= len(whole) - len(b"\r\n0\r\n\r\n")
            except EngineFailed as error:
                assert (end < head) == ("before it answered" in error.message), end
            assert only(engines).in_flight == 0

    with_engine(script, test)


def test_bytes_push_the_idle_timeout_forward() -> None:
    async def script(call: Call) -> None:
        call.begin_stream()
        for byte in b"data: 1\n\n" + DONE:
            call.chunk(bytes([byte]))
            await call.flush()
            await asyncio.sleep(0.05)
        call.end_stream()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        assert await read(engines) == [b"1"]

    with_engine(script, test, idle_timeout_s=0.5)


@pytest.mark.parametrize("length", ["content-length: 5", "transfer-encoding: chunked"])
def test_a_body_that_breaks_off_is_a_failure(length: str) -> None:
    async def script(call: Call) -> None:
        head = f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
        call.write(head.encode() + (b"1\r\n{\r\n" if "chunked" in length else b"{"))
        await call.flush()
        call.close()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        generation = await one_shot(engines)
        with generation, pytest.raises(EngineFailed, match="broke off"):
            await generation.body()
        assert outcomes(only(engines)) == {Ending.FAILED: 1}

    with_engine(script, test)


def test_a_body_that_stalls_times_out() -> None:
    async def script(call: Call) -> None:
        call.write(
            b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
        )
        await call.flush()
        await call.gone()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        generation = await one_shot(engines)
        with generation, pytest.raises(EngineTimedOut, match="--engine-idle-timeout"):
            await generation.body()

    with_engine(script, test, idle_timeout_s=0.2)


def test_a_body_may_not_grow_without_bound() -> None:
    async def script(call: Call) -> None:
        call.answer(b"x" * 2_000_000)

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        generation = await one_shot(engines)
        with generation, pytest.raises(EngineFailed, match="more than 1000000 bytes"):
            await generation.body()

    with_engine(script, test, max_body_bytes=1_000_000)
