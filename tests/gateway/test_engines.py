"""Generating through engines that answer, fail, stall and vanish, over real sockets."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from core.errors import (
    DerenderError,
    EngineFailed,
    EngineRefused,
    EngineTimedOut,
    EngineUnreachable,
    Overloaded,
)
from gateway.engines.engine import EngineStats, Outcome
from gateway.engines.generation import Generation
from gateway.engines.headers import engine_headers
from gateway.engines.metrics import EngineCollector
from gateway.engines.pool import Engines
from gateway.engines.settings import EngineSettings
from tests.gateway.scripted_engine import (
    DONE,
    Call,
    Client,
    Script,
    ScriptedEngine,
    die,
    first_event,
    full,
    hold,
    reset,
    run,
    well,
)

STREAM = b'{"stream":true}'
HEADERS = [("content-type", "application/json")]


async def stream(engines: Engines, body: bytes = STREAM) -> Generation:
    return await engines.generate(body, HEADERS, stream=True)


async def one_shot(engines: Engines, body: bytes = b"{}") -> Generation:
    return await engines.generate(body, HEADERS, stream=False)


async def read(engines: Engines) -> list[bytes]:
    """All events of one generation."""
    found = []
    with await stream(engines) as generation:
        while (events := await generation.events()) is not None:
            found += events
        assert generation.done
    return found


def only(engines: Engines) -> EngineStats:
    (stats,) = engines.stats().engines
    return stats


def outcomes(stats: EngineStats) -> dict[Outcome, int]:
    return {outcome: count for outcome, count in stats.outcomes.items() if count}


async def failure(engines: Engines, kind: type[DerenderError], *, streamed: bool = True) -> str:
    """The message `generate` fails with."""
    with pytest.raises(kind) as caught:
        await engines.generate(STREAM, HEADERS, stream=streamed)
    return caught.value.message


def with_engine(
    script: Script, test: Callable[[ScriptedEngine, Engines], Any], **options: Any
) -> None:
    """Run a test with one engine."""

    async def main() -> None:
        async with ScriptedEngine(script) as engine, Client(engine, **options) as engines:
            await test(engine, engines)

    run(main())


# Answers


def test_streams_and_bodies_are_read_over_one_kept_connection() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        for _ in range(3):
            assert await read(engines) == [b'{"n":1}', b'{"n":2}']
            with await one_shot(engines) as generation:
                assert generation.engine_url == engine.url
                assert await generation.body() == b'{"choices":[]}'
        assert engine.connections == 1
        assert outcomes(only(engines)) == {Outcome.FINISHED: 6}
        assert engines.stats().retries == 0

    with_engine(well, test)


def test_what_is_sent_arrives() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        body = b'"%s"' % (b"x" * (3 << 20))
        with await engines.generate(body, [("x-request-id", "r1")], stream=False) as generation:
            await generation.body()
        (call,) = engine.calls
        assert call.head.startswith(b"POST /inference/v1/generate HTTP/1.1\r\n")
        assert b"x-request-id: r1\r\n" in call.head
        assert b"cookie" not in call.head.lower()
        assert call.body == body

    with_engine(well, test)


def test_events_that_came_together_are_handed_on_together() -> None:
    async def script(call: Call) -> None:
        call.begin_stream()
        call.chunk(b"data: 1\n\ndata: 2\n\ndata: 3\n\nda")
        await call.flush()
        await more.wait()
        call.chunk(b"ta: 4\n\n" + DONE)
        await call.flush()
        await more_still.wait()
        call.end_stream()

    more, more_still = asyncio.Event(), asyncio.Event()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        generation = await stream(engines)
        assert await generation.events() == [b"1", b"2", b"3"]
        more.set()
        assert await generation.events() == [b"4"]
        assert generation.done
        assert await generation.events() is None
        generation.close()
        more_still.set()

    with_engine(script, test)


def test_a_connection_is_kept_when_its_end_follows_the_close() -> None:
    async def script(call: Call) -> None:
        call.begin_stream()
        call.chunk(DONE)
        await call.flush()
        await closed.wait()
        call.end_stream()
        ended.set()

    closed, ended = asyncio.Event(), asyncio.Event()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        with await stream(engines) as generation:
            assert await generation.events() is None
        assert only(engines).in_flight == 0
        closed.set()
        await ended.wait()
        engine.script = well
        # Beside it, so that the loop reads the end before a connection is looked for.
        await asyncio.sleep(0.05)
        assert await read(engines) == [b'{"n":1}', b'{"n":2}']
        assert engine.connections == 1

    with_engine(script, test)


def test_a_connection_whose_end_never_follows_is_closed() -> None:
    async def script(call: Call) -> None:
        call.begin_stream()
        call.chunk(DONE)
        await call.flush()
        await call.gone()
        gone.set()

    gone = asyncio.Event()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        with await stream(engines) as generation:
            assert await generation.events() is None
        await gone.wait()

    with_engine(script, test)


def test_an_end_without_done_is_told_apart() -> None:
    async def script(call: Call) -> None:
        call.begin_stream()
        call.chunk(b"data: 1\n\n")
        call.end_stream()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        with await stream(engines) as generation:
            assert await generation.events() == [b"1"]
            assert await generation.events() is None
            assert not generation.done
        assert outcomes(only(engines)) == {Outcome.FAILED: 1}

    with_engine(script, test)


# Refusals


@pytest.mark.parametrize(
    ("status", "body", "message", "kind", "param"),
    [
        (
            400,
            b'{"error":{"message":"Too long.","type":"BadRequestError","param":"a","code":400}}',
            "Too long.",
            "BadRequestError",
            "a",
        ),
        (404, b'{"error":{"message":"No."}}', "No.", "NotFoundError", None),
        (
            401,
            b'{"error":"Unauthorized"}',
            "the engine answered with status 401: Unauthorized",
            "UnauthorizedError",
            None,
        ),
        (
            404,
            b'{"detail":"Not Found"}',
            "the engine answered with status 404: Not Found",
            "NotFoundError",
            None,
        ),
        (
            422,
            b'{"detail":[{"loc":["body","n"],"msg":"too big"},{"msg":"odd"}]}',
            "the engine answered with status 422: body.n: too big; odd",
            "UnprocessableEntityError",
            None,
        ),
        (
            418,
            b"<html>" + b"x" * 1000,
            "the engine answered with status 418: <html>" + "x" * 194,
            "I'mATeapotError",
            None,
        ),
        (499, b"", "the engine answered with status 499", "BadRequestError", None),
        (400, b"[" * 60_000, "the engine answered with status 400: " + "[" * 200, "B", None),
    ],
)
def test_refusals_are_passed_on(
    status: int, body: bytes, message: str, kind: str, param: str | None
) -> None:
    async def script(call: Call) -> None:
        call.answer(body, status)

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        for _ in range(4):
            with pytest.raises(EngineRefused) as caught:
                await stream(engines)
            assert caught.value.message == message
            assert (caught.value.status, caught.value.param) == (status, param)
            assert caught.value.type.startswith(kind)
            assert caught.value.retry_after_s is None
        assert only(engines).up
        assert engine.connections == 1
        assert outcomes(only(engines)) == {Outcome.REFUSED: 4}

    with_engine(script, test)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("7", 7), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("9" * 5000, None)],
)
def test_the_only_engine_may_say_when_to_return(
    status: int, retry_after: str, seconds: int | None
) -> None:
    async def script(call: Call) -> None:
        call.answer(b"{}", status, retry_after=retry_after)

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        for _ in range(4):
            with pytest.raises(EngineRefused) as caught:
                await stream(engines)
            assert (caught.value.status, caught.value.retry_after_s) == (status, seconds)
        assert only(engines).up
        assert len(engine.calls) == 4

    with_engine(script, test)


@pytest.mark.parametrize("status", [500, 502, 504, 302, 204])
def test_other_statuses_are_failures_that_name_the_engine(status: int) -> None:
    async def script(call: Call) -> None:
        call.answer(b'{"error":{"message":"Dead."}}' if status != 204 else b"", status)

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        url = engine.url.replace("http://", "http://user:secret@")
        async with Client(urls=(url,)) as engines:
            message = await failure(engines, EngineFailed)
            assert message.startswith(f"engine {engine.url}: the engine answered with status")
            assert message.endswith(": Dead.") or status == 204
            assert b"authorization: Basic dXNlcjpzZWNyZXQ=" in engine.calls[0].head
            assert len(engine.calls) == 1

    with_engine(script, test)


@pytest.mark.parametrize(
    ("streamed", "kind", "coding"),
    [
        (True, "application/json", "identity"),
        (True, "text/event-stream", "gzip"),
        (False, "text/event-stream", "identity"),
        (False, "text/html", "identity"),
    ],
)
def test_answers_of_another_kind_are_failures(streamed: bool, kind: str, coding: str) -> None:
    async def script(call: Call) -> None:
        call.answer(b"x", kind=kind, content_encoding=coding)

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        message = await failure(engines, EngineFailed, streamed=streamed)
        assert (kind if coding == "identity" else coding) in message
        assert outcomes(only(engines)) == {Outcome.FAILED: 1}

    with_engine(script, test)


# Failures before a status


def test_an_engine_that_refuses_connections_is_unreachable() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        await engine.vanish()
        assert engine.url in await failure(engines, EngineUnreachable)
        assert outcomes(only(engines)) == {Outcome.UNREACHABLE: 2}
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
        assert outcomes(only(engines)) == {Outcome.FAILED: 2}
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
        assert outcomes(only(engines)) == {Outcome.FINISHED: 2}
        assert engines.stats().retries == 0

    with_engine(script, test)


def test_a_restarted_engine_is_asked_over_a_new_connection() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        await read(engines)
        await engine.vanish()
        await engine.listen()
        await read(engines)
        assert outcomes(only(engines)) == {Outcome.FINISHED: 2}

    with_engine(well, test)


@pytest.mark.parametrize("body", [STREAM, b'"%s"' % (b"x" * (32 << 20))])
def test_an_engine_that_never_answers_times_out(body: bytes) -> None:
    async def script(call: Call) -> None:
        await asyncio.Event().wait()

    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        with pytest.raises(EngineTimedOut, match=r"sent nothing for 0.2 s \(--engine-idle-timeout"):
            await stream(engines, body)
        assert outcomes(only(engines)) == {Outcome.TIMED_OUT: 1}
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
            assert outcomes(only(engines)) == {Outcome.TIMED_OUT: 2}
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


# Failures in the middle


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
        outcome = Outcome.TIMED_OUT if kind is EngineTimedOut else Outcome.FAILED
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
        assert outcomes(only(engines)) == {Outcome.FAILED: 1}

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


# Back-pressure


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


# Going away


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelling_while_it_connects() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        async with Client(urls=(engine.url.replace("http://", "https://"),)) as engines:
            task = asyncio.create_task(stream(engines))
            await engine.until(lambda: engine.connections == 1)
            assert only(engines).in_flight == 1
            await cancelled(task)
            assert outcomes(only(engines)) == {Outcome.ABORTED: 1}

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
        assert outcomes(only(engines))[Outcome.ABORTED] == 1

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
        assert outcomes(only(engines)) == {Outcome.ABORTED: 1}

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
        assert outcomes(only(engines)) == {Outcome.ABORTED: 1}
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
        assert outcomes(only(engines)) == {Outcome.ABORTED: 1}

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


# Several engines


def with_engines(
    scripts: list[Script], test: Callable[[list[ScriptedEngine], Engines], Any], **options: Any
) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            peers = [ScriptedEngine(script) for script in scripts]
            for peer in peers:
                await stack.enter_async_context(peer)
            engines = await stack.enter_async_context(Client(*peers, **options))
            await test(peers, engines)

    run(main())


def calls(peers: list[ScriptedEngine]) -> list[int]:
    return [len(peer.calls) for peer in peers]


def test_ties_go_round() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        for _ in range(9):
            await read(engines)
        assert calls(peers) == [3, 3, 3]

    with_engines([well, well, well], test)


def test_the_engine_with_the_fewest_in_flight_is_asked() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        held = [await stream(engines) for _ in range(6)]
        assert calls(peers) == [2, 2, 2]
        kept = [one for one in held if one.engine_url != peers[1].url]
        for one in held:
            if one not in kept:
                one.close()
        held = [await stream(engines) for _ in range(2)]
        assert calls(peers) == [2, 4, 2]
        for one in (*held, *kept):
            one.close()

    with_engines([hold, hold, hold], test)


def test_a_full_engine_is_not_asked_and_a_full_house_refuses() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        held = [await stream(engines) for _ in range(4)]
        with pytest.raises(Overloaded):
            await stream(engines)
        held.pop().close()
        held.append(await stream(engines))
        for one in held:
            one.close()

    with_engines([hold, hold], test, max_connections=2)


def test_a_dead_engine_costs_one_retry_and_is_left_alone() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        await peers[0].vanish()
        for _ in range(6):
            await read(engines)
        assert engines.stats().retries == 1
        dead, alive = engines.stats().engines
        assert (dead.up, dead.ejections) == (False, 1)
        assert outcomes(dead) == {Outcome.UNREACHABLE: 1}
        assert outcomes(alive) == {Outcome.FINISHED: 6}

    with_engines([well, well], test)


def test_a_request_is_sent_to_two_engines_at_most() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        await failure(engines, EngineFailed)
        assert sorted(calls(peers)) == [0, 1, 1]
        assert engines.stats().retries == 1

    with_engines([reset, reset, reset], test)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_an_engine_without_room_hands_over_to_another(status: int) -> None:
    async def full(call: Call) -> None:
        call.answer(b"{}", status, retry_after="3")

    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        for _ in range(4):
            await read(engines)
        assert calls(peers)[1] == 4
        peers[1].script = full
        if status == 503:
            with pytest.raises(EngineRefused) as caught:
                await stream(engines)
            assert caught.value.retry_after_s == 3
        else:
            await failure(engines, EngineFailed)

    with_engines([full, well], test)


def test_what_an_engine_said_stands_when_the_other_is_gone() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        await peers[0].vanish()
        for _ in range(3):
            with pytest.raises(EngineRefused):
                await stream(engines)

    with_engines([well, full], test)


@pytest.mark.parametrize("status", [429, 500, 400])
def test_other_statuses_are_not_tried_again(status: int) -> None:
    async def refuse(call: Call) -> None:
        call.answer(b"{}", status)

    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        with pytest.raises(DerenderError):
            await stream(engines)
        assert sum(calls(peers)) == 1

    with_engines([refuse, refuse], test)


def test_three_broken_answers_in_a_row_eject() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        for count in range(6):
            broken = pytest.raises(EngineFailed) if count % 2 == 0 else contextlib.nullcontext()
            with broken:
                await read(engines)
        assert [stats.up for stats in engines.stats().engines] == [True, False]
        for _ in range(4):
            await read(engines)
        assert calls(peers) == [7, 3]

    with_engines([well, die], test, probe_interval_s=600)


def test_a_health_check_brings_an_engine_back() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        await peers[0].vanish()
        for _ in range(2):
            await read(engines)
        assert not engines.stats().engines[0].up
        peers[0].script = unhealthy
        await peers[0].listen()
        await peers[0].until(lambda: peers[0].checks >= 2)
        assert not engines.stats().engines[0].up
        peers[0].script = well
        checks = peers[0].checks
        await peers[0].until(lambda: peers[0].checks > checks)
        while not engines.stats().engines[0].up:
            await asyncio.sleep(0.01)
        for _ in range(2):
            await read(engines)
        assert calls(peers) == [1, 3]
        assert b"authorization: Bearer key" not in peers[0].calls[0].head

    async def unhealthy(call: Call) -> None:
        assert b"authorization: Bearer key" in call.head
        call.answer(b"", 503)

    with_engines([well, well], test, probe_interval_s=0.05, api_key="key")


def test_time_brings_an_engine_back_on_trial() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        await peers[0].vanish()
        for _ in range(2):
            await read(engines)
        await peers[0].listen()
        while not peers[0].calls:
            await read(engines)
            await asyncio.sleep(0.05)
        assert engines.stats().engines[0].up
        assert engines.stats().engines[0].ejections == 1

    with_engines([well, well], test, probe_interval_s=600)


def test_when_all_are_ejected_they_are_asked_anyway() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        for peer in peers:
            await peer.vanish()
        await failure(engines, EngineUnreachable)
        assert not any(stats.up for stats in engines.stats().engines)
        for peer in peers:
            await peer.listen()
        await read(engines)
        await read(engines)
        assert sum(stats.up for stats in engines.stats().engines) == 1

    with_engines([well, well], test, probe_interval_s=600)


async def mixed(call: Call) -> None:
    """Misbehave by the number in the request."""
    scripts = [well, die, well, reset, full, well]
    number = int(call.body.partition(b"#")[2] or 0)
    await scripts[number % len(scripts)](call)


async def hasty(engines: Engines, number: int) -> None:
    """Read a generation, unless it fails, or patience or interest end."""
    with contextlib.suppress(DerenderError, TimeoutError):
        async with asyncio.timeout(0.02 if number % 7 == 0 else 20):
            with await stream(engines, b'{"stream":true}#%d' % number) as generation:
                while await generation.events() is not None and number % 5:
                    pass


def test_everything_returns_to_zero_under_chaos() -> None:
    async def test(peers: list[ScriptedEngine], engines: Engines) -> None:
        await asyncio.gather(*(hasty(engines, number) for number in range(300)))
        stats = engines.stats().engines
        assert [engine.in_flight for engine in stats] == [0, 0, 0]
        assert sum(sum(engine.outcomes.values()) for engine in stats) == (
            300 + engines.stats().retries
        )
        for peer in peers:
            peer.script = well
        await read(engines)

    with_engines([mixed, mixed, mixed], test, probe_interval_s=0.05)


# Headers, settings, metrics


def headers_of(request: dict[bytes, bytes], **options: Any) -> dict[str, str]:
    settings = EngineSettings(urls=("http://e",), **options)
    pairs = engine_headers(request, "cmpl-1", settings)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_headers_are_chosen_from_the_callers() -> None:
    passed_on = {
        "traceparent": "00-1",
        "tracestate": "a=1",
        "baggage": "b=2",
        "x-data-parallel-rank": "3",
        "x-session-id": "s\u00e9ssion",
        "x-vllm-priority": "-1",
    }
    request = {name.encode(): value.encode() for name, value in passed_on.items()}
    unsent = {b"cookie": b"c", b"host": b"h", b"authorization": b"Bearer caller", b"x-other": b"o"}
    assert headers_of(request | unsent) == {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "derender-gateway",
        "x-request-id": "cmpl-1",
        **passed_on,
    }


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\0", b"\x7f", b"\xff", b"a\nb"])
def test_headers_that_cannot_be_sent_are_left_out(value: bytes) -> None:
    assert "traceparent" not in headers_of({b"traceparent": value})
    assert "authorization" not in headers_of({b"authorization": value}, forward_authorization=True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"api_key": "k"}, "Bearer k"),
        ({"forward_authorization": True}, "Bearer caller"),
        ({"forward_authorization": True, "api_key": "k"}, "Bearer caller"),
    ],
)
def test_authorization_is_as_configured(options: dict[str, Any], expected: str | None) -> None:
    headers = headers_of({b"authorization": b"Bearer caller"}, **options)
    assert headers.get("authorization") == expected


def test_the_key_stands_in_for_callers_without_one() -> None:
    assert headers_of({}, forward_authorization=True, api_key="k")["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    "options",
    [
        {"urls": ()},
        {"urls": ("engine:8000",)},
        {"urls": ("ftp://engine",)},
        {"urls": ("http://",)},
        {"urls": ("http://engine:99999",)},
        {"urls": ("http://u:secret@engine:8000?x=1",)},
        {"urls": ("http://engine#x",)},
        {"urls": ("http://engine",), "api_key": "a\nb"},
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="engine") as caught:
        EngineSettings(**options)
    assert "secret" not in str(caught.value)


def test_metrics_show_each_engine_without_its_password() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        url = engine.url.replace("http://", "http://user:secret@") + "/"
        async with Client(urls=(url,)) as engines:
            await read(engines)
            registry = CollectorRegistry()
            registry.register(EngineCollector(engines))
            lines = generate_latest(registry).decode().splitlines()
            for line in (
                f'derender_engine_up{{engine="{engine.url}"}} 1.0',
                f'derender_engine_requests_in_flight{{engine="{engine.url}"}} 0.0',
                f'derender_engine_requests_total{{engine="{engine.url}",outcome="finished"}} 1.0',
                f'derender_engine_requests_total{{engine="{engine.url}",outcome="failed"}} 0.0',
                f'derender_engine_ejections_total{{engine="{engine.url}"}} 0.0',
                "derender_engine_retries_total 0.0",
            ):
                assert line in lines

    with_engine(well, test)
