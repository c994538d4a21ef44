"""Streams of the front door, as the gateway holds them: which shard serves each, and what it took.

A shard keeps a stream's parsers, and nothing but its own memory does. So the gateway keeps the
stream's journal, a few bytes per token, and opens the stream anew where its shard was replaced.
"""

import os
from collections import Counter

from core.protocol.calls import AdvanceStream, OpenStream
from core.protocol.errors import Overloaded, ShardUnavailable, StreamMissing
from core.protocol.plan import Advance, EngineEvent, advance_decoder
from shards.pool.pool import Pool

_REOPENINGS = 10
"""Times a stream is opened anew for one advance; who kills shards is given up long before."""


class Sessions:
    """The streams one gateway serves, spread over the shards."""

    def __init__(self, pool: Pool, max_per_shard: int = 4096) -> None:
        """Begin with none.

        Args:
            pool: The stream shards.
            max_per_shard: Streams one shard may hold; more are refused.
        """
        self._pool = pool
        self._max_per_shard = max_per_shard
        self._held: Counter[int] = Counter()
        self.reopened = 0
        """Streams opened anew because their shard was replaced."""

    @property
    def count(self) -> int:
        """Streams held."""
        return self._held.total()

    def new(self, recipe: bytes, created: int, trace_id: str) -> "Session":
        """A stream, not opened yet.

        Raises:
            ShardUnavailable: No shard serves.
            Overloaded: Every shard holds as many streams as it may.
        """
        return Session(self, self._pool, recipe, created, trace_id)

    def take_place(self) -> int:
        """The shard with the fewest streams, which from now on holds one more."""
        shards = self._pool.connected()
        if not shards:
            raise ShardUnavailable(self._pool.readiness() or "no shard serves")
        shard = min(shards, key=lambda shard: self._held[shard])
        if self._held[shard] >= self._max_per_shard:
            raise Overloaded(f"every shard has {self._max_per_shard} streams open")
        self._held[shard] += 1
        return shard

    def give_place(self, shard: int) -> None:
        """A shard holds one stream less."""
        self._held[shard] -= 1


class Session:
    """One stream. Holds its recipe and its journal until it is closed."""

    def __init__(
        self, sessions: Sessions, pool: Pool, recipe: bytes, created: int, trace_id: str
    ) -> None:
        """Take a place in a shard."""
        self._sessions = sessions
        self._pool = pool
        self._recipe = recipe
        self._created = created
        self._trace_id = trace_id
        self._name = os.urandom(12).hex()
        self._journal = bytearray()
        self._shard = sessions.take_place()
        self._closed = False

    async def open(self) -> None:
        """Have the shard make the parsers.

        Raises:
            DerenderError: It refuses, or cannot be had.
        """
        call = OpenStream(
            call_id=self._pool.new_call_id(),
            trace_id=self._trace_id,
            session=self._name,
            recipe=self._recipe,
            created=self._created,
            journal=bytes(self._journal),
        )
        await self._pool.call(self._shard, call)

    async def advance(self, events: list[EngineEvent]) -> Advance:
        """Have the shard take events of the engine.

        Raises:
            DerenderError: No shard can take them.
        """
        for _ in range(_REOPENINGS):
            if self._pool.is_away(self._shard):
                await self._move()
            try:
                answer = await self._pool.call(self._shard, self._advance_call(events))
            except StreamMissing:
                self._sessions.reopened += 1
                await self.open()
                continue
            advance = advance_decoder.decode(answer)
            self._journal += advance.journal
            return advance
        raise ShardUnavailable("the shards of this stream ended again and again")

    async def _move(self) -> None:
        """Go on in another shard where there is room: this one does not come back soon."""
        try:
            taken = self._sessions.take_place()
        except (Overloaded, ShardUnavailable):
            return  # The next call waits for this one's successor.
        left, self._shard = self._shard, taken
        self._sessions.give_place(left)
        self._pool.close_session(left, self._name)
        self._sessions.reopened += 1
        await self.open()

    def close(self) -> None:
        """Have the shard forget the stream."""
        if not self._closed:
            self._closed = True
            self._pool.close_session(self._shard, self._name)
            self._sessions.give_place(self._shard)

    def _advance_call(self, events: list[EngineEvent]) -> AdvanceStream:
        return AdvanceStream(
            call_id=self._pool.new_call_id(),
            trace_id=self._trace_id,
            session=self._name,
            events=events,
        )
