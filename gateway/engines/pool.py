"""All engines: who is asked next, and who after a failure."""

import asyncio
import logging
import weakref
from collections.abc import Iterable

import msgspec

from core.protocol.errors import EngineUnreachable, Overloaded
from gateway.engines.engine import Ending, Engine, EngineStats
from gateway.engines.generation import Generation
from gateway.engines.sending import Request, RetryWhere, Sender, Unanswered
from gateway.engines.settings import EngineSettings

_logger = logging.getLogger(__name__)


class EnginesStats(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of all engines."""

    engines: tuple[EngineStats, ...]
    retries: int
    """Requests sent to a second engine, or to the same over a new connection."""


class Engines:
    """The engines behind a gateway process."""

    def __init__(self, settings: EngineSettings) -> None:
        """Connect to nothing; `start` needs a running event loop."""
        self._settings = settings
        self._engines = tuple(Engine(url) for url in settings.urls)
        self._turn = 0
        self._retries = 0
        self._sender: Sender | None = None
        self._watch: asyncio.Task[None] | None = None
        self._generations: weakref.WeakSet[Generation] = weakref.WeakSet()

    async def start(self) -> None:
        """Begin to look after engines and generations."""
        self._sender = Sender(self._settings)
        self._watch = asyncio.create_task(self._look_after(self._sender))

    async def close(self) -> None:
        """Close every connection; generations that are read raise `EngineFailed`."""
        sender, self._sender = self._sender, None
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        for generation in list(self._generations):
            generation.cut()
        if sender is not None:
            await sender.close()

    def stats(self) -> EnginesStats:
        """What is known of the engines."""
        engines = tuple(engine.stats() for engine in self._engines)
        return EnginesStats(engines=engines, retries=self._retries)

    async def generate(
        self, body: bytes, headers: list[tuple[str, str]], *, stream: bool
    ) -> Generation:
        """Send a request to the engine with the fewest in flight, and await the head of its answer.

        A request that got no answer is sent once more, to another engine where there is one: when
        no connection came about, when it was closed before a status came, and, only where there is
        another well engine, when the status is 502, 503 or 504. (A pooled connection that the
        engine had closed does not count: see `Sender.send`.)

        Args:
            body: JSON.
            headers: From `engine_headers`.
            stream: Whether events or one JSON document are expected.

        Returns:
            The answer, to be closed by the caller.

        Raises:
            EngineRefused: The engine answered 4xx or 503.
            EngineUnreachable: No engine can be connected to.
            EngineFailed: The engine closed the connection, or sent what is no answer.
            EngineTimedOut: The engine did not accept the connection, or not answer, in time.
            Overloaded: Every engine has as many requests in flight as it may.
        """
        request = Request(body, headers, stream)
        first = self._choose()
        if first is None:
            raise Overloaded("every engine has as many requests in flight as it may")
        try:
            return await self._attempt(first, request, fresh=False)
        except Unanswered as unanswered:
            said = unanswered
        second = self._second(first, said.again)
        if second is None:
            raise said.error from said
        self._retries += 1
        try:
            return await self._attempt(second, request, fresh=True)
        except Unanswered as unanswered:
            # What an engine said tells a caller more than that another could not be asked.
            if not isinstance(unanswered.error, EngineUnreachable):
                said = unanswered
            raise said.error from unanswered

    async def _attempt(self, engine: Engine, request: Request, *, fresh: bool) -> Generation:
        if self._sender is None:
            raise EngineUnreachable("the gateway is not connected to engines")
        attempt = engine.begin()
        try:
            response = await self._sender.send(attempt, request, fresh=fresh)
        except Unanswered:
            raise
        except BaseException:
            attempt.end(Ending.ABORTED)
            raise
        generation = Generation(response, attempt, self._settings)
        self._generations.add(generation)
        return generation

    def _choose(self) -> Engine | None:
        """The well engine with the fewest requests; without one, the one that returns first."""
        return self._fewest_in_flight() or self._first_to_return()

    def _second(self, first: Engine, again: RetryWhere) -> Engine | None:
        """Whom to ask after an engine did not answer; None where nobody is."""
        if again is RetryWhere.NOWHERE or self._sender is None:
            return None
        other = self._fewest_in_flight(but=first)
        if other is not None or again is RetryWhere.ELSEWHERE:
            return other
        if not first.health.ejected:
            return first
        return self._first_to_return(but=first) or first

    def _fewest_in_flight(self, but: Engine | None = None) -> Engine | None:
        now = asyncio.get_running_loop().time()
        # Beginning one further each time makes ties go round.
        self._turn = (self._turn + 1) % len(self._engines)
        turned = self._engines[self._turn :] + self._engines[: self._turn]
        well = (engine for engine in self._free(turned, but) if engine.health.returns_at <= now)
        return min(well, key=_in_flight, default=None)

    def _first_to_return(self, but: Engine | None = None) -> Engine | None:
        return min(self._free(self._engines, but), key=_returns_at, default=None)

    def _free(self, engines: Iterable[Engine], but: Engine | None) -> Iterable[Engine]:
        most = self._settings.max_connections or float("inf")
        return (engine for engine in engines if engine is not but and engine.in_flight < most)

    async def _look_after(self, sender: Sender) -> None:
        while True:
            await asyncio.sleep(self._settings.probe_interval_s)
            for generation in list(self._generations):
                generation.notice_loss()
            ejected = [engine for engine in self._engines if engine.health.wants_check]
            await asyncio.gather(*(self._check(sender, engine) for engine in ejected))

    async def _check(self, sender: Sender, engine: Engine) -> None:
        if await sender.is_healthy(engine) and engine.health.wants_check:
            engine.health.checked()
            _logger.info("engine %s is healthy and back", engine.url)


def _in_flight(engine: Engine) -> int:
    return engine.in_flight


def _returns_at(engine: Engine) -> float:
    return engine.health.returns_at
