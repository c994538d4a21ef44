"""One engine, and the requests it has in flight."""

import asyncio
import base64
import logging
from collections import Counter
from enum import StrEnum
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from gateway.engines.health import EngineHealth

_logger = logging.getLogger(__name__)


class Ending(StrEnum):
    """How a request to an engine ends."""

    FINISHED = "finished"
    ABORTED = "aborted"
    REFUSED = "refused"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an engine."""

    url: str
    up: bool
    """False while it is ejected."""
    in_flight: int
    ejections: int
    outcomes: dict[Ending, int]
    """Requests by how they ended."""


class Engine:
    """An engine at a URL.

    Attributes:
        url: Without credentials and a slash at the end; for messages and metrics.
        basic_authorization: From the credentials in the URL; empty where it has none.
        in_flight: Requests that have not ended.
    """

    def __init__(self, url: str) -> None:
        """Begin well, with nothing in flight."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self.url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self.basic_authorization = _basic(parts)
        self.in_flight = 0
        self.health = EngineHealth()
        self._outcomes: Counter[Ending] = Counter()

    def begin(self) -> "Attempt":
        """Count a request that is about to be sent."""
        self.in_flight += 1
        return Attempt(self, self.health.begin(asyncio.get_running_loop().time()))

    def end(self, outcome: Ending) -> None:
        """Count a request that ended."""
        self.in_flight -= 1
        self._outcomes[outcome] += 1

    def stats(self) -> EngineStats:
        """What is known of it."""
        return EngineStats(
            url=self.url,
            up=not self.health.ejected,
            in_flight=self.in_flight,
            ejections=self.health.ejections,
            outcomes={outcome: self._outcomes[outcome] for outcome in Ending},
        )


class Attempt:
    """One request at one engine. It ends once; what is said after that is not counted."""

    def __init__(self, engine: Engine, begun: int) -> None:
        """Begin.

        Args:
            engine: Who is asked.
            begun: What `EngineHealth.begin` returned.
        """
        self.engine = engine
        self._begun = begun
        self._ended = False

    def answered(self) -> None:
        """The engine accepted the request and begins to answer."""
        self.engine.health.answered(self._begun)

    def end(self, outcome: Ending, *, well: bool = False) -> None:
        """Count the end.

        Args:
            outcome: How the request ended.
            well: Whether that shows that the engine works.
        """
        if self._end(outcome) and well:
            self.engine.health.ended_well(self._begun)

    def fail(self, outcome: Ending, reason: str, *, to_connect: bool = False) -> None:
        """Count an end that is held against the engine.

        Args:
            outcome: How the request ended.
            reason: What happened, for the log.
            to_connect: Whether there was no connection at all.
        """
        now = asyncio.get_running_loop().time()
        health = self.engine.health
        if self._end(outcome) and health.failed(self._begun, now, to_connect=to_connect):
            _logger.warning(
                "engine %s is ejected for %g s: %s",
                self.engine.url,
                health.returns_at - now,
                reason,
            )

    def _end(self, outcome: Ending) -> bool:
        """Whether this is the first end."""
        if self._ended:
            return False
        self._ended = True
        self.engine.end(outcome)
        return True


def _basic(parts: SplitResult) -> str:
    if parts.username is None and parts.password is None:
        return ""
    credentials = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(credentials.encode()).decode()
