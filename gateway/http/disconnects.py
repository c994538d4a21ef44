"""Ends work for callers who are gone."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from gateway.http.body import ClientGone

PATIENCE_S = 0.05
"""Answers that come sooner, nearly all of them, are not worth a watch."""

Receive = Callable[[], Awaitable[Any]]


async def while_connected(work: Coroutine[Any, Any, bytes], receive: Receive) -> bytes:
    """Await work, and cancel it once the caller closes the connection.

    Args:
        work: What the caller waits for.
        receive: The ASGI receive function, whose body was read.

    Raises:
        ClientGone: The caller left first.
    """
    watch = _Watch(receive)
    timer = asyncio.get_running_loop().call_later(PATIENCE_S, watch.start)
    try:
        return await work
    except asyncio.CancelledError:
        if watch.gone:
            raise ClientGone from None
        raise
    finally:
        timer.cancel()
        watch.stop()


class _Watch:
    """Cancels the task that made it when the caller leaves."""

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._waiter = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._waiter is not None:
            self.gone = True
            self._waiter.cancel()
