"""Bounds on waiting: one wait, and many waits with one timer."""

import asyncio

import pytest

from core.protocol.errors import TimedOut
from gateway.http.deadlines import Watchdog, within


async def _forever() -> None:
    await asyncio.Event().wait()


async def _one() -> int:
    await asyncio.sleep(0)
    return 1


def test_one_wait_is_bounded() -> None:
    with pytest.raises(TimedOut, match=r"more than 0\.01 s"):
        asyncio.run(within(0.01, _forever()))
    assert asyncio.run(within(10, _one())) == 1


def test_each_of_many_waits_is_bounded() -> None:
    async def run() -> int:
        watchdog = Watchdog(0.05)
        done = 0
        for _ in range(3):
            for _ in range(100):
                done += await watchdog.watch(_one())
            # Longer than the bound, but not inside a wait.
            await asyncio.sleep(0.06)
        for _ in range(2):
            with pytest.raises(TimedOut):
                await watchdog.watch(_forever())
        done += await watchdog.watch(_one())
        watchdog.close()
        return done

    assert asyncio.run(run()) == 301


def test_time_between_waits_does_not_count() -> None:
    async def run() -> None:
        watchdog = Watchdog(0.1)
        for _ in range(4):
            await watchdog.watch(asyncio.sleep(0.04))
        # The one timer of all these waits is due by now, and still bounds a wait that is too long.
        with pytest.raises(TimedOut):
            await watchdog.watch(asyncio.sleep(5))
        watchdog.close()

    asyncio.run(run())


def test_a_cancelled_wait_stays_cancelled() -> None:
    async def run() -> None:
        async def wait() -> None:
            watchdog = Watchdog(10)
            try:
                await watchdog.watch(_forever())
            finally:
                watchdog.close()

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
