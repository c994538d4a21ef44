"""Callers that read slowly, or go away."""

import asyncio

import pytest

from core.protocol.errors import (
    EngineFailed,
    EngineUnreachable,
)
from gateway.engines.engine import Ending
from gateway.engines.pool import Engines
from tests.gateway.engine_calls import (
    cancelled,
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
    run,
    well,
)


def test_an_unread_stream_stops_the_engine() -> None:
    event = b"data: " + b"x" * 65_530 + b"\n\n"
    sent = 0

    async def script(call: Call) -> None:
        nonlocal sent
        call.writer.transport.set_write_buffer_limits(0)
        call.begin_stream()
        try:
            while True:
                call.chunk(event)
                await asyncio.wait_for(call.flush(), 0.5)
                sent += 1
        except TimeoutError:
            blocked.set()
        await call.flush()
        call.chunk(DONE)
        call.end_stream()

    blocked = asyncio.Event()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        with await stream(engines) as generation:
            await blocked.wait()
            # What the sockets of both sides take, and two buffers of ours.
            assert sent * len(event) < 16 << 20
            received = 0
            while (events := await generation.events()) is not None:
                assert sum(map(len, events)) < 1 << 20
                received += len(events)
            assert generation.done
            assert received == sent + 1

    # An engine that may not send is not silent: the pause is longer than the timeout.
    with_engine(script, test, idle_timeout_s=0.4)


def test_cancelling_while_it_connects() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        async with Client(urls=(engine.url.replace("http://", "https://"),)) as engines:
            task = asyncio.create_task(stream(engines))
            await engine.until(lambda: engine.connections == 1)
            assert only(engines).in_flight == 1
            await cancelled(task)
            assert outcomes(only(engines)) == {Ending.ABORTED: 1}

    with_engine(well, test)


@pytest.mark.parametrize("warm", [False, True])
def test_cancelling_before_the_status(warm: bool) -> None:
    async def script(call: Call) -> None:
        await call.gone()
        gone.set()

    gone = asyncio.Event()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        if warm:
            await read(engines)
            engine.script = script
        count = len(engine.calls)
        task = asyncio.create_task(one_shot(engines))
        await engine.until(lambda: len(engine.calls) > count)
        await cancelled(task)
        await gone.wait()
        assert outcomes(only(engines))[Ending.ABORTED] == 1

    with_engine(well if warm else script, test)


def test_cancelling_while_a_refusal_is_read() -> None:
    async def script(call: Call) -> None:
        call.write(b"HTTP/1.1 503 X\r\ncontent-length: 9\r\n\r\n{")
        await call.flush()
        half.set()
        await call.gone()
        gone.set()

    half, gone = asyncio.Event(), asyncio.Event()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        task = asyncio.create_task(stream(engines))
        await half.wait()
        await cancelled(task)
        await gone.wait()
        assert outcomes(only(engines)) == {Ending.ABORTED: 1}

    with_engine(script, test)


@pytest.mark.parametrize("events", [0, 1])
def test_cancelling_in_the_middle(events: int) -> None:
    async def script(call: Call) -> None:
        call.begin_stream()
        for _ in range(events):
            call.chunk(b"data: 1\n\n")
        await call.flush()
        await call.gone()
        gone.set()

    gone = asyncio.Event()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        reading = asyncio.Event()

        async def read_on() -> None:
            with await stream(engines) as generation:
                for _ in range(events):
                    await generation.events()
                reading.set()
                await generation.events()

        task = asyncio.create_task(read_on())
        await reading.wait()
        await cancelled(task)
        assert only(engines).in_flight == 0
        await gone.wait()
        assert outcomes(only(engines)) == {Ending.ABORTED: 1}
        assert only(engines).up

    with_engine(script, test)


def test_closing_an_unread_stream_ends_the_connection_at_once() -> None:
    async def script(call: Call) -> None:
        await first_event(call)
        await call.gone()
        gone.set()

    gone = asyncio.Event()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        generation = await stream(engines)
        assert await generation.events() == [b"1"]
        generation.close()
        generation.close()
        await gone.wait()
        with pytest.raises(EngineFailed, match="closed"):
            await generation.events()
        assert outcomes(only(engines)) == {Ending.ABORTED: 1}

    with_engine(script, test)


def test_closing_wakes_up_who_reads() -> None:
    async def script(call: Call) -> None:
        await first_event(call)
        await call.gone()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        generation = await stream(engines)
        await generation.events()
        task = asyncio.create_task(generation.events())
        await asyncio.sleep(0)
        generation.close()
        with pytest.raises(EngineFailed, match="closed"):
            await task

    with_engine(script, test)


def test_a_client_that_ends_wakes_up_everyone() -> None:
    async def script(call: Call) -> None:
        if len(engines_calls) < 1:
            engines_calls.append(call)
            await first_event(call)
        await call.gone()

    engines_calls: list[Call] = []

    async def main() -> None:
        async with ScriptedEngine(script) as engine, Client(engine) as engines:
            generation = await stream(engines)
            await generation.events()
            reading = asyncio.create_task(generation.events())
            waiting = asyncio.create_task(stream(engines))
            await engine.until(lambda: len(engine.calls) == 2)
            await engines.close()
            for task in (reading, waiting):
                with pytest.raises((EngineFailed, EngineUnreachable)):
                    await task
            assert "not connected" in await failure(engines, EngineUnreachable)

    run(main())
