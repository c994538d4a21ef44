"""A shard without its process: answers with a table of live streams, called as a pool does."""

import json
from collections.abc import Generator
from typing import NamedTuple

import msgspec
import xxhash

from core.answerer import Answerer
from core.protocol.calls import DerenderChatChunk
from core.protocol.errors import ContextMissing, DerenderError, FaultCode
from shards.messages.counters import TableCounters
from shards.messages.orders import TableLimits
from shards.pool.digests import HeldContexts
from shards.shard.stream_table import StreamTable
from tests.core.calling import Json, Setup, call_of, model


class Refusal(NamedTuple):
    """An error as a caller sees it."""

    code: FaultCode
    message: str
    param: str | None


Answer = bytes | Refusal


def call_for(body: bytes | Json) -> DerenderChatChunk:
    """The call a gateway makes of a body, every one at the same time."""
    made = call_of(body if isinstance(body, bytes) else json.dumps(body).encode(), "chat")
    assert isinstance(made, DerenderChatChunk)
    return made


def replayed(setup: Setup, call: DerenderChatChunk) -> Answer:
    """What a server that keeps nothing answers: the measure of every answer."""
    try:
        return Answerer(model(setup)).answer(call)
    except DerenderError as error:
        return Refusal(error.code, error.message, error.param)


class Replica:
    """One shard and the calling side's belief of what it holds.

    Attributes:
        counted: Counters of the tables it had.
    """

    def __init__(self, setup: Setup, limits: TableLimits, *, digests: bool) -> None:
        self._setup = setup
        self._limits = limits
        self._digests = digests
        self._held = HeldContexts()
        self._now = 0.0
        self.counted: list[TableCounters] = []
        self._start(successor=False)

    def _start(self, *, successor: bool) -> None:
        self.table = StreamTable(self._limits, lambda: self._now, successor=successor)
        self._answerer = Answerer(model(self._setup), self.table)

    def restart(self, *, noticed: bool) -> None:
        """Lose everything; the calling side may not have noticed."""
        self.counted.append(self.table.counters())
        self._start(successor=True)
        if noticed:
            self._held.clear()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
        self.table.expire()

    def answer(self, call: DerenderChatChunk) -> Answer:
        """The answer, however many slices it takes."""
        return finish(self.begin(call))

    def abandon(self, call: DerenderChatChunk, steps: int) -> None:
        """Begin a call that nobody waits for in the end."""
        begun = self.begin(call)
        try:
            for _ in range(steps):
                next(begun)
        except (StopIteration, DerenderError):
            return
        begun.close()

    def begin(self, call: DerenderChatChunk) -> Generator[bool, None, bytes]:
        """The steps of a call, sent again with its contexts where the shard lacks them."""
        named = self._named(call)
        try:
            return (yield from self._steps(self._lightened(named)))
        except ContextMissing:
            self._held.forget(named)
            return (yield from self._steps(self._lightened(named)))

    def _steps(self, call: DerenderChatChunk) -> Generator[bool, None, bytes]:
        begun = self._answerer.begin(call)
        return begun if isinstance(begun, bytes) else (yield from begun)

    def _lightened(self, call: DerenderChatChunk) -> DerenderChatChunk:
        lightened = self._held.lighten(call)
        assert isinstance(lightened, DerenderChatChunk)
        return lightened

    def _named(self, call: DerenderChatChunk) -> DerenderChatChunk:
        if not self._digests:
            return call
        prompt, request = call.prompt_token_ids, call.request
        return msgspec.structs.replace(
            call,
            prompt_digest=xxhash.xxh3_128_digest(prompt) if prompt else b"",
            request_digest=xxhash.xxh3_128_digest(request) if request else b"",
        )


def finish(begun: Generator[bool, None, bytes]) -> Answer:
    """Run a call to its end."""
    while True:
        try:
            next(begun)
        except StopIteration as done:
            answer: bytes = done.value
            return answer
        except DerenderError as error:
            return Refusal(error.code, error.message, error.param)
