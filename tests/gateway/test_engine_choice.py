"""Several engines: whom to ask, and who is left alone."""

import asyncio
import contextlib

import pytest

from core.protocol.errors import (
    DerenderError,
    EngineFailed,
    EngineRefused,
    EngineUnreachable,
    Overloaded,
)
from gateway.engines.engine import Ending
from gateway.engines.pool import Engines
from tests.gateway.engine_calls import (
    calls,
    failure,
    outcomes,
    read,
    stream,
    with_engines,
)
from tests.gateway.scripted_engine import (
    Call,
    ScriptedEngine,
    die,
    full,
    hold,
    reset,
    well,
)


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
        assert outcomes(dead) == {Ending.UNREACHABLE: 1}
        assert outcomes(alive) == {Ending.FINISHED: 6}

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
