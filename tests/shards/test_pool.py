"""The calling side against scripted shards on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from core.protocol.errors import BadRequest, Overloaded, ShardLostTwice, ShardUnavailable
from shards.messages.orders import PoolSettings
from shards.pool.pool import Pool
from tests.shards.scripted import ScriptedShard, call

Body = Callable[[Pool], Awaitable[None]]


def _run(address: Path, body: Body, **bounds: int | float) -> None:
    async def main() -> None:
        settings = PoolSettings(addresses=(str(address),), authkey=b"key", **bounds)  # type: ignore[arg-type]
        pool = Pool(settings)
        await pool.start()
        try:
            async with asyncio.timeout(20):
                await body(pool)
        finally:
            await pool.close()

    asyncio.run(main())


async def _serving(pool: Pool) -> None:
    while pool.readiness() is not None:
        await asyncio.sleep(0.005)


async def _lost(pool: Pool) -> None:
    while pool.readiness() is None:
        await asyncio.sleep(0.005)


def test_answers_and_refusals_come_back(tmp_path: Path) -> None:
    shard = ScriptedShard(str(tmp_path / "s"), pid=1)

    async def body(pool: Pool) -> None:
        await _serving(pool)
        calls = [pool.call(0, call(number, f"echo:{number}")) for number in range(20)]
        assert await asyncio.gather(*calls) == [str(number).encode() for number in range(20)]
        with pytest.raises(BadRequest, match="too long") as caught:
            await pool.call(0, call(99, "refuse:too long"))
        assert caught.value.param == "field"
        assert pool.ready is not None
        assert pool.ready.max_model_len == 64
        assert pool.stats()[0].in_flight == 0

    _run(tmp_path / "s", body)
    shard.join()


def test_before_the_first_greeting_calls_are_refused(tmp_path: Path) -> None:
    async def body(pool: Pool) -> None:
        assert "warming up" in (pool.readiness() or "")
        with pytest.raises(ShardUnavailable, match="warming up"):
            await pool.call(0, call(1, "echo:x"))

    _run(tmp_path / "s", body)


def test_calls_of_a_dead_shard_reach_its_successor(tmp_path: Path) -> None:
    first = ScriptedShard(str(tmp_path / "s"), pid=1)

    async def body(pool: Pool) -> None:
        await _serving(pool)
        calls = [
            asyncio.create_task(pool.call(0, call(number, script)))
            for number, script in enumerate(["die", "echo:a", "echo:b"])
        ]
        await _lost(pool)
        assert "restarting" in (pool.readiness() or "")
        second = ScriptedShard(str(tmp_path / "s"), pid=2)
        with pytest.raises(ShardLostTwice):
            await calls[0]
        third = ScriptedShard(str(tmp_path / "s"), pid=3)
        assert await asyncio.gather(*calls[1:]) == [b"a", b"b"]
        stats = pool.stats()[0]
        assert (stats.restarts, stats.resent, stats.in_flight) == (2, 5, 0)
        second.join()
        assert third.seen == ["echo:a", "echo:b"]

    _run(tmp_path / "s", body)
    first.join()


def test_calls_are_bounded(tmp_path: Path) -> None:
    shard = ScriptedShard(str(tmp_path / "s"), pid=1)

    async def body(pool: Pool) -> None:
        await _serving(pool)
        held = [asyncio.create_task(pool.call(0, call(number, "hold"))) for number in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await pool.call(0, call(3, "echo:x"))
        for task in held:
            task.cancel()

    _run(tmp_path / "s", body, max_calls_in_flight=2)
    shard.join()


def test_bytes_are_bounded_but_one_call_always_fits(tmp_path: Path) -> None:
    shard = ScriptedShard(str(tmp_path / "s"), pid=1)

    async def body(pool: Pool) -> None:
        await _serving(pool)
        assert await pool.call(0, call(1, "echo:" + "x" * 1000)) == b"x" * 1000
        held = asyncio.create_task(pool.call(0, call(2, "hold")))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await pool.call(0, call(3, "echo:" + "x" * 1000))
        held.cancel()

    _run(tmp_path / "s", body, max_bytes_in_flight=500)
    shard.join()


def test_calls_do_not_wait_for_ever(tmp_path: Path) -> None:
    shard = ScriptedShard(str(tmp_path / "s"), pid=1)

    async def body(pool: Pool) -> None:
        await _serving(pool)
        with pytest.raises(ShardUnavailable, match="does not answer"):
            await pool.call(0, call(1, "die"))

    _run(tmp_path / "s", body, recovery_timeout_s=0.1)
    shard.join()


def test_closing_refuses_what_is_in_flight(tmp_path: Path) -> None:
    shard = ScriptedShard(str(tmp_path / "s"), pid=1)

    async def body(pool: Pool) -> None:
        await _serving(pool)
        held = asyncio.create_task(pool.call(0, call(1, "hold")))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(ShardUnavailable, match="shutting down"):
            await held

    _run(tmp_path / "s", body)
    shard.join()


def test_streams_keep_their_shard_and_one_shots_take_the_least_busy() -> None:
    pool = Pool(PoolSettings(addresses=("a", "b", "c"), authkey=b"key"))
    homes = {key: pool.shard_of(key) for key in map(str, range(100))}
    assert set(homes.values()) == {0, 1, 2}
    assert all(pool.shard_of(key) == home for key, home in homes.items())
    assert pool.least_busy() == 0


def test_a_call_in_the_moment_of_a_loss_waits_for_the_successor(tmp_path: Path) -> None:
    shard = ScriptedShard(str(tmp_path / "s"), pid=1)

    async def main() -> None:
        pool = Pool(PoolSettings(addresses=(str(tmp_path / "s"),), authkey=b"key"))
        await pool.start()
        await _serving(pool)
        transport = pool._connections[0]._transport
        assert transport is not None
        # Closed, and nobody has been told: uvloop raises for whoever writes now.
        transport.abort()
        calling = asyncio.ensure_future(pool.call(0, call(1, "echo:again")))
        pool.close_session(0, "gone")
        await asyncio.to_thread(shard.join)
        successor = ScriptedShard(str(tmp_path / "s"), pid=2)
        async with asyncio.timeout(20):
            assert await calling == b"again"
        await pool.close()
        await asyncio.to_thread(successor.join)

    uvloop.run(main())
