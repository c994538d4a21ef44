"""Bounds how long a request may take."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from core.errors import TimedOut

T = TypeVar("T")


async def within(timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
    """Await work, and cancel it after a while.

    `asyncio.timeout` does the same at several times the cost, which every chunk would pay.

    Raises:
        TimedOut: The work took longer than `timeout_s`.
    """
    deadline = _Deadline()
    timer = asyncio.get_running_loop().call_later(timeout_s, deadline.pass_by)
    try:
        return await work
    except asyncio.CancelledError:
        if deadline.passed:
            raise TimedOut(f"the request took more than {timeout_s:g} s") from None
        raise
    finally:
        timer.cancel()


class _Deadline:
    """Cancels the task that made it when it passes."""

    def __init__(self) -> None:
        self.passed = False
        self._task = asyncio.current_task()

    def pass_by(self) -> None:
        self.passed = True
        if self._task is not None:
            self._task.cancel()
