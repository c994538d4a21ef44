"""The calling side of the shards: picks one, bounds what is in flight, waits for the answer."""

import asyncio
import itertools
import os

import msgspec
import xxhash

from core.protocol.errors import Overloaded, ShardUnavailable
from core.protocol.ids import rendezvous
from core.protocol.wire import Call, Kind, Ready
from shards.messages.counters import TableCounters, counters_decoder
from shards.pool.digests import name_contexts
from shards.pool.shard_connection import Link

_STAND_IN_AFTER_S = 1.0


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the shards are and how much work may wait for them."""

    addresses: tuple[str, ...]
    """Socket path of each shard, by index."""
    authkey: bytes
    name: str = "shard"
    """What one of them is called in messages."""
    max_calls_in_flight: int = 256
    """Calls one shard may have without an answer; more are refused."""
    max_bytes_in_flight: int = 512 * 1024 * 1024
    """Bytes of calls one shard may have without an answer; more are refused."""
    max_reply_bytes: int = 4 * 1024 * 1024 * 1024
    recovery_timeout_s: float = 40.0
    """How long calls wait for the successor of a shard that ended."""


class ShardStats(msgspec.Struct, frozen=True, kw_only=True):
    """One shard as the pool sees it."""

    shard: int
    connected: bool
    in_flight: int
    restarts: int
    resent: int


class Pool:
    """Calls shards. Used from one event loop.

    A call whose shard ends is sent again to the successor; `shard_connection` says who is given up.
    """

    def __init__(self, settings: PoolSettings) -> None:
        """Describe the shards; `start` connects."""
        self._settings = settings
        self._links = [
            Link(shard, address, settings.authkey, settings.max_reply_bytes, settings.name)
            for shard, address in enumerate(settings.addresses)
        ]
        self._tasks: list[asyncio.Task[None]] = []
        # Not from 1: a shard tells which call it died of by this number, over gateway restarts.
        self._call_ids = itertools.count(int.from_bytes(os.urandom(5)) << 16)
        self._seed = int.from_bytes(xxhash.xxh3_64_digest(settings.authkey))

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        timeout_s = self._settings.recovery_timeout_s
        self._tasks = [asyncio.create_task(link.run(timeout_s)) for link in self._links]

    async def close(self) -> None:
        """Drop every connection; calls in flight are refused."""
        for task in self._tasks:
            task.cancel()
        for link in self._links:
            link.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse_pending(self) -> None:
        """Refuse every call in flight: the server is about to end."""
        for link in self._links:
            link.refuse_pending("the server is shutting down")

    def new_call_id(self) -> int:
        """Draw the `call_id` of the next call."""
        return next(self._call_ids)

    def shard_of(self, key: str) -> int:
        """Shard that serves the stream with this identity.

        While that one is away for longer than a restart takes, another one stands in.
        """
        home = self._links[rendezvous(key, len(self._links))]
        if not self.is_away(home.shard):
            return home.shard
        connected = [link for link in self._links if link.connected] or [home]
        return connected[rendezvous(key, len(connected))].shard

    def is_away(self, shard: int) -> bool:
        """Whether a shard is gone for longer than a restart takes."""
        link = self._links[shard]
        return not link.connected and link.away_s >= _STAND_IN_AFTER_S

    def connected(self) -> list[int]:
        """Shards that answer at once."""
        return [link.shard for link in self._links if link.connected]

    def least_busy(self) -> int:
        """Shard with the fewest calls in flight, connected ones first."""
        return min(self._links, key=lambda link: (not link.connected, len(link.pending))).shard

    def close_session(self, shard: int, session: str) -> None:
        """Have a shard forget a stream of the front door."""
        self._links[shard].close_session(session)

    async def call(self, shard: int, call: Call) -> bytes:
        """Have a shard answer.

        Calls of a session are not refused for want of room: each has one in flight at most, and
        what bounds them is the number of sessions.

        Raises:
            DerenderError: The shard's own refusal; ShardUnavailable before it first serves or when
                its successor does not come; Overloaded; ShardLostTwice.
        """
        link = self._links[shard]
        if link.ready is None:
            raise ShardUnavailable(self.readiness() or f"the {self._settings.name}s are warming up")
        size = 0
        if not call.session:
            call = name_contexts(call, self._seed)
            size = _size(call)
            self._check_room(link, size)
        try:
            return await link.submit(call, size)
        except asyncio.CancelledError:
            link.cancel(call.call_id)
            raise

    def _check_room(self, link: Link, size: int) -> None:
        if len(link.pending) >= self._settings.max_calls_in_flight:
            raise Overloaded(f"{link.name} has {len(link.pending)} requests waiting")
        room = self._settings.max_bytes_in_flight - link.pending_bytes
        if link.pending and size > room:
            raise Overloaded(f"{link.name} has {link.pending_bytes} bytes of requests waiting")

    async def counters(self, timeout_s: float = 1.0) -> dict[int, TableCounters]:
        """Counters of the live streams of every shard that answers in time, by shard."""
        asked = [(link.shard, self._ask(link)) for link in self._links if link.connected]
        tasks = {asyncio.ensure_future(asking): shard for shard, asking in asked}
        if not tasks:
            return {}
        done, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        return {tasks[task]: task.result() for task in done if task.exception() is None}

    async def _ask(self, link: Link) -> TableCounters:
        call = Call(self.new_call_id(), Kind.STATS, "", 0, "", b"", b"", b"", b"", b"")
        try:
            return counters_decoder.decode(await link.submit(call, 0))
        except asyncio.CancelledError:
            link.cancel(call.call_id)
            raise

    def readiness(self) -> str | None:
        """Why the service does not serve fully; None when every shard serves."""
        missing = [link for link in self._links if not link.connected]
        if not missing:
            return None
        state = "restarting" if missing[0].ready else "warming up"
        numbers = ", ".join(str(link.shard) for link in missing)
        shards = f"{len(missing)} of {len(self._links)} {self._settings.name}s"
        return f"{shards} do not serve ({state}: {numbers})"

    @property
    def ready(self) -> Ready | None:
        """What the shards say of the model; None before the first serves."""
        return next((link.ready for link in self._links if link.ready), None)

    def stats(self) -> list[ShardStats]:
        """Every shard as it is now."""
        return [
            ShardStats(
                shard=link.shard,
                connected=link.connected,
                in_flight=len(link.pending),
                restarts=max(0, link.generations - 1),
                resent=link.resent,
            )
            for link in self._links
        ]


def _size(call: Call) -> int:
    """Bytes of a call's parts."""
    parts = (call.generate, call.stream_state, call.prompt_token_ids, call.request)
    return sum(map(len, parts))
