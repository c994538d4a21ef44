"""The calling side of the shards: picks one, bounds what is in flight, waits for the answer."""

import asyncio
import itertools
import os

import msgspec
import xxhash

from core.protocol.calls import (
    AdvanceStream,
    AnswerWhole,
    DerenderCall,
    DerenderChat,
    DerenderChatChunk,
    DerenderCompletion,
    DerenderCompletionChunk,
    MakePlan,
    OpenStream,
    Render,
    Stats,
    Work,
)
from core.protocol.errors import Overloaded, ShardUnavailable
from core.protocol.ids import rendezvous
from shards.messages.counters import TableCounters, counters_decoder
from shards.messages.orders import PoolSettings
from shards.messages.replies import Ready
from shards.pool.digests import name_contexts
from shards.pool.shard_connection import ShardConnection

_STAND_IN_AFTER_S = 1.0


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
        self._connections = [
            ShardConnection(
                shard, address, settings.authkey, settings.max_reply_bytes, settings.name
            )
            for shard, address in enumerate(settings.addresses)
        ]
        self._tasks: list[asyncio.Task[None]] = []
        # Not from 1: a shard tells which call it died of by this number, over gateway restarts.
        self._call_ids = itertools.count(int.from_bytes(os.urandom(5)) << 16)
        self._seed = int.from_bytes(xxhash.xxh3_64_digest(settings.authkey))

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        timeout_s = self._settings.recovery_timeout_s
        self._tasks = [asyncio.create_task(peer.run(timeout_s)) for peer in self._connections]

    async def close(self) -> None:
        """Drop every peer; calls in flight are refused."""
        for task in self._tasks:
            task.cancel()
        for peer in self._connections:
            peer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse_pending(self) -> None:
        """Refuse every call in flight: the server is about to end."""
        for peer in self._connections:
            peer.refuse_pending("the server is shutting down")

    def new_call_id(self) -> int:
        """Draw the `call_id` of the next call."""
        return next(self._call_ids)

    def shard_of(self, key: str) -> int:
        """Shard that serves the stream with this identity.

        While that one is away for longer than a restart takes, another one stands in.
        """
        home = self._connections[rendezvous(key, len(self._connections))]
        if not self.is_away(home.shard):
            return home.shard
        connected = [peer for peer in self._connections if peer.connected] or [home]
        return connected[rendezvous(key, len(connected))].shard

    def is_away(self, shard: int) -> bool:
        """Whether a shard is gone for longer than a restart takes."""
        peer = self._connections[shard]
        return not peer.connected and peer.away_s >= _STAND_IN_AFTER_S

    def connected(self) -> list[int]:
        """Shards that answer at once."""
        return [peer.shard for peer in self._connections if peer.connected]

    def least_busy(self) -> int:
        """Shard with the fewest calls in flight, connected ones first."""
        return min(
            self._connections,
            key=lambda peer: (not peer.connected, len(peer.pending)),
        ).shard

    def close_session(self, shard: int, session: str) -> None:
        """Have a shard forget a stream of the front door."""
        self._connections[shard].close_session(session)

    async def call(self, shard: int, call: Work) -> bytes:
        """Have a shard answer.

        Calls of a session are not refused for want of room: each has one in flight at most, and
        what bounds them is the number of sessions.

        Raises:
            DerenderError: The shard's own refusal; ShardUnavailable before it first serves or when
                its successor does not come; Overloaded; ShardLostTwice.
        """
        peer = self._connections[shard]
        if peer.ready is None:
            raise ShardUnavailable(self.readiness() or f"the {self._settings.name}s are warming up")
        size = 0
        if not isinstance(call, OpenStream | AdvanceStream):
            call = name_contexts(call, self._seed)
            size = _size(call)
            self._check_room(peer, size)
        try:
            return await peer.submit(call, size)
        except asyncio.CancelledError:
            peer.cancel(call.call_id)
            raise

    def _check_room(self, peer: ShardConnection, size: int) -> None:
        if len(peer.pending) >= self._settings.max_calls_in_flight:
            raise Overloaded(f"{peer.name} has {len(peer.pending)} requests waiting")
        room = self._settings.max_bytes_in_flight - peer.pending_bytes
        if peer.pending and size > room:
            raise Overloaded(f"{peer.name} has {peer.pending_bytes} bytes of requests waiting")

    async def counters(self, timeout_s: float = 1.0) -> dict[int, TableCounters]:
        """Counters of the live streams of every shard that answers in time, by shard."""
        asked = [(peer.shard, self._ask(peer)) for peer in self._connections if peer.connected]
        tasks = {asyncio.ensure_future(asking): shard for shard, asking in asked}
        if not tasks:
            return {}
        done, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        # Let them take back what they asked, so that nobody counts it as work.
        await asyncio.gather(*late, return_exceptions=True)
        return {tasks[task]: task.result() for task in done if task.exception() is None}

    async def _ask(self, peer: ShardConnection) -> TableCounters:
        call = Stats(call_id=self.new_call_id())
        try:
            return counters_decoder.decode(await peer.submit(call, 0))
        except asyncio.CancelledError:
            peer.cancel(call.call_id)
            raise

    def readiness(self) -> str | None:
        """Why the service does not serve fully; None when every shard serves."""
        missing = [peer for peer in self._connections if not peer.connected]
        if not missing:
            return None
        state = "restarting" if missing[0].ready else "warming up"
        numbers = ", ".join(str(peer.shard) for peer in missing)
        shards = f"{len(missing)} of {len(self._connections)} {self._settings.name}s"
        return f"{shards} do not serve ({state}: {numbers})"

    @property
    def ready(self) -> Ready | None:
        """What the shards say of the model; None before the first serves."""
        return next((peer.ready for peer in self._connections if peer.ready), None)

    def stats(self) -> list[ShardStats]:
        """Every shard as it is now."""
        return [
            ShardStats(
                shard=peer.shard,
                connected=peer.connected,
                in_flight=len(peer.pending),
                restarts=max(0, peer.generations - 1),
                resent=peer.resent,
            )
            for peer in self._connections
        ]


def _size(call: Work) -> int:
    """Bytes of a call's large parts."""
    match call:
        case Render() | MakePlan():
            return len(call.body)
        case AnswerWhole():
            return len(call.recipe) + sum(map(len, call.bodies))
        case OpenStream() | AdvanceStream():
            return 0
        case DerenderChatChunk() | DerenderCompletionChunk():
            return len(call.stream_state) + _derender_size(call)
        case DerenderChat() | DerenderCompletion():
            return _derender_size(call)


def _derender_size(call: DerenderCall) -> int:
    return len(call.generate) + len(call.prompt_token_ids) + len(call.request)
