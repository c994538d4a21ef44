"""Bounds how long a request may take."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from core.protocol.errors import TimedOut

T = TypeVar("T")


async def within(timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
    """Await work, and cancel it after a while.

    `asyncio.timeout` does the same at several times the cost, which every chunk would pay.

    Raises:
        TimedOut: The work took longer than `timeout_s`.
    """
    watchdog = Watchdog(timeout_s)
    try:
        return await watchdog.watch(work)
    finally:
        watchdog.close()


class Watchdog:
    """Bounds each of the many waits of one task, with one timer for all of them.

    `within` takes a timer per wait, which a stream would pay for every token.
    """

    def __init__(self, timeout_s: float) -> None:
        """Watch nothing yet.

        Args:
            timeout_s: How long one wait may take.
        """
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.current_task()
        self._passed = False

    async def watch(self, work: Awaitable[T]) -> T:
        """Await work in the task that made this, and cancel it after a while.

        Raises:
            TimedOut: The work took too long.
        """
        self._due = self._loop.time() + self._timeout_s
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._look)
        try:
            return await work
        except asyncio.CancelledError:
            if self._passed:
                self._passed = False
                raise TimedOut(f"the request took more than {self._timeout_s:g} s") from None
            raise
        finally:
            self._due = None

    def close(self) -> None:
        """Let go of the task."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._due is None:
            return
        left = self._due - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        elif self._task is not None:
            self._passed = True
            self._task.cancel()
