"""The engine's side of one request of the front door: a generation per prompt, read as one.

Reading waits for whoever takes the events, so what is not taken yet stays bounded: an engine whose
events are not read is paused by its own connection.
"""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from core.protocol.errors import EngineFailed
from core.protocol.plan import EngineEvent, EngineRequest
from gateway.engines.generation import Generation
from gateway.engines.headers import engine_headers
from gateway.services.served_model import EngineSide

MAX_AT_ONCE = 64
"""Prompts of one request that are generated at the same time; the others wait for their turn."""

T = TypeVar("T")
Headers = dict[bytes, bytes]
Batch = list[EngineEvent]


class Caller:
    """Asks engines in the name of one HTTP request."""

    def __init__(self, side: EngineSide, headers: Headers) -> None:
        """Keep what every engine request needs.

        Args:
            side: Whom to ask, and with whose authorization.
            headers: The caller's, with names in lower case.
        """
        self._engines = side.engines
        self._settings = side.settings
        self._headers = headers
        self._answering: set[str] = set()

    async def generate(self, request: EngineRequest, *, stream: bool) -> Generation:
        """The engine's answer, to be closed.

        Raises:
            DerenderError: No engine answers, or it refuses.
        """
        headers = engine_headers(self._headers, request.request_id, self._settings)
        generation = await self._engines.generate(request.body, headers, stream=stream)
        self._answering.add(generation.engine_url)
        return generation

    def name(self, failure: EngineFailed) -> EngineFailed:
        """The failure, with the engine's URL in its message where one engine alone answered."""
        if len(self._answering) != 1 or failure.message.startswith("engine "):
            return failure
        return EngineFailed(f"engine {next(iter(self._answering))}: {failure.message}")

    async def bodies(self, requests: Sequence[EngineRequest]) -> list[bytes]:
        """Whole answers, in order; the first failure ends all.

        Raises:
            DerenderError: An engine does not answer, or it refuses.
        """
        turns = asyncio.Semaphore(MAX_AT_ONCE)

        async def answer(request: EngineRequest) -> bytes:
            async with turns:
                with await self.generate(request, stream=False) as generation:
                    return await generation.body()

        if len(requests) == 1:
            return [await answer(requests[0])]
        tasks = [asyncio.create_task(answer(request)) for request in requests]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            await _cancel(tasks)


class Upstream:
    """The events of all prompts of a request, in the order in which they come."""

    def __init__(self, caller: Caller, requests: Sequence[EngineRequest]) -> None:
        """Ask nothing yet.

        Args:
            caller: Asks the engines.
            requests: One per prompt.
        """
        self._caller = caller
        self._requests = requests
        self._single: Generation | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        # One batch of each generation that is read, and no more.
        self._batches: asyncio.Queue[tuple[int, Batch | Exception]] = asyncio.Queue(MAX_AT_ONCE)
        self._aborted: set[int] = set()
        self._failure: Exception | None = None

    async def start(self) -> None:
        """Send the requests; of a single one, await the head of the answer.

        Raises:
            DerenderError: The engine does not answer, or it refuses.
        """
        if len(self._requests) == 1:
            self._single = await self._caller.generate(self._requests[0], stream=True)
            return
        for prompt, request in enumerate(self._requests):
            self._tasks[prompt] = asyncio.create_task(self._pump(prompt, request))

    async def next(self) -> Batch:
        """Await events, at least one; an empty one ends a prompt.

        Raises:
            DerenderError: A generation broke off.
        """
        if self._single is not None:
            return await _read(self._single, 0)
        batch: Batch = []
        while not self._failure and not (batch and self._batches.empty()):
            prompt, part = await self._batches.get()
            if prompt in self._aborted:
                continue
            if isinstance(part, Exception):
                self._failure = part
            else:
                batch += part
        # What came before a failure goes out before it.
        if self._failure and not batch:
            raise self._failure
        return batch

    def abort(self, prompt: int) -> None:
        """Have an engine stop generating for a prompt; what it still says is passed over."""
        self._aborted.add(prompt)
        if prompt in self._tasks:
            self._tasks[prompt].cancel()
        elif self._single is not None:
            self._single.close()

    async def close(self) -> None:
        """Have every engine stop."""
        if self._single is not None:
            self._single.close()
        await _cancel(list(self._tasks.values()))

    async def _pump(self, prompt: int, request: EngineRequest) -> None:
        try:
            async with self._turns:
                with await self._caller.generate(request, stream=True) as generation:
                    ended = False
                    while not ended:
                        batch = await _read(generation, prompt)
                        ended = not batch[-1].data
                        await self._batches.put((prompt, batch))
        except Exception as error:  # noqa: BLE001 - raised where the events are read
            await self._batches.put((prompt, error))


async def _read(generation: Generation, prompt: int) -> Batch:
    payloads = await generation.events()
    if payloads is None:
        return [EngineEvent(prompt, b"")]
    batch = [EngineEvent(prompt, payload) for payload in payloads]
    if generation.done:
        batch.append(EngineEvent(prompt, b""))
    return batch


async def _cancel(tasks: Sequence[asyncio.Task[T]]) -> None:
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)
