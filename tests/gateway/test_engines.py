"""What engines answer, and what they refuse."""

import asyncio

import pytest

from core.protocol.errors import (
    EngineFailed,
    EngineRefused,
)
from gateway.engines.engine import Ending
from gateway.engines.pool import Engines
from gateway.engines.refusals import refusal
from tests.gateway.engine_calls import (
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
    well,
)


def test_streams_and_bodies_are_read_over_one_kept_connection() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        for _ in range(3):
            assert await read(engines) == [b'{"n":1}', b'{"n":2}']
            with await one_shot(engines) as generation:
                assert generation.engine_url == engine.url
                assert await generation.body() == b'{"choices":[]}'
        assert engine.connections == 1
        assert outcomes(only(engines)) == {Ending.FINISHED: 6}
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
        await asyncio.sleep(0.2)
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
        assert outcomes(only(engines)) == {Ending.FAILED: 1}

    with_engine(script, test)


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
        (409, b'{"error":{"message":"No."}}', "No.", "ConflictError", None),
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
        assert outcomes(only(engines)) == {Ending.REFUSED: 4}

    with_engine(script, test)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b'{"error":"Unauthorized"}', "status 401: Unauthorized"),
        (403, b"", "status 403"),
        (404, b'{"detail":"Not Found"}', "status 404: Not Found"),
        (404, b'{"error":{"message":"No such model."}}', "status 404: No such model."),
        (405, b"", "status 405"),
    ],
)
def test_what_our_own_settings_cause_is_no_fault_of_the_caller(
    status: int, body: bytes, said: str
) -> None:
    error = refusal("http://engine", status, body, None, callers_key=False)
    assert isinstance(error, EngineFailed)
    assert error.message == f"engine http://engine: the engine answered with {said}"
    forwarded = refusal("http://engine", status, body, None, callers_key=True)
    assert isinstance(forwarded, EngineRefused) == (status in (401, 403))


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
        assert outcomes(only(engines)) == {Ending.FAILED: 1}

    with_engine(script, test)
