"""Streams of the front door against real shard servers in threads, with scripted streams."""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path

import pytest

from core.protocol.calls import AdvanceStream, CloseStream, OpenStream, Work
from core.protocol.errors import (
    DerenderError,
    Overloaded,
    ShardLostTwice,
    ShardUnavailable,
    StreamMissing,
)
from core.protocol.plan import Advance, EngineEvent, advance_encoder
from shards.messages.channel import listen
from shards.messages.counters import TableCounters
from shards.messages.logs import LogSettings
from shards.messages.orders import PoolSettings, ShardSpec, TableLimits
from shards.messages.replies import Ready, Reply
from shards.pool import pool as pool_module
from shards.pool.pool import Pool
from shards.pool.sessions import Session, Sessions
from shards.shard.gateway_connection import GatewayConnection
from shards.shard.scheduler import Answered, Scheduler
from shards.shard.server import ShardServer
from shards.shard.stream_table import StreamTable

Peers = tuple[GatewayConnection, GatewayConnection]
Body = Callable[[Pool, Sessions], Awaitable[None]]
RECIPE = b"recipe"
DEADLINE_S = 10.0


class Streams:
    """Streams that answer with all they were ever sent.

    `die` ends the shard, `die!` does so each time; `slow` takes for ever.
    """

    def __init__(self) -> None:
        self.taken: dict[str, list[bytes]] = {}
        self.opened: list[tuple[bytes, bytes]] = []
        self.died = False

    def begin(self, call: Work) -> bytes | Generator[bool, None, bytes]:
        if isinstance(call, OpenStream):
            self.opened.append((call.recipe, call.journal))
            self.taken[call.session] = [call.journal]
            return b""
        assert isinstance(call, AdvanceStream)
        if call.session not in self.taken:
            raise StreamMissing
        data = b"".join(event.data for event in call.events)
        if data == b"slow":
            return self._slow(call.session)
        if data == b"die!" or (data == b"die" and not self.died):
            self.died = True
            raise SystemExit
        self.taken[call.session].append(data)
        whole = b"".join(self.taken[call.session])
        return advance_encoder.encode(Advance(whole, False, data, 1))

    def _slow(self, session: str) -> Generator[bool, None, bytes]:
        while session in self.taken:
            yield True
        return b""

    def close_stream(self, session: str) -> None:
        self.taken.pop(session, None)


class Shard:
    """A shard's server in a thread."""

    def __init__(self, address: str, pid: int, streams: Streams | None = None) -> None:
        self.streams = streams or Streams()
        spec = ShardSpec(
            shard=0, address=address, authkey=b"key", max_frame_bytes=1 << 20, logs=LogSettings()
        )
        self._ours, self._theirs = multiprocessing.Pipe()
        self._listener = listen(address)
        table = StreamTable(TableLimits(), time.monotonic)
        ready = Ready(shard=0, pid=pid)
        self._server = ShardServer(spec, self._theirs, self._listener, self.streams, table, ready)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._server.run()
        except SystemExit:
            pass
        finally:
            self._server.close()
            self._listener.close()
            self._theirs.close()

    def stop(self) -> None:
        self._ours.close()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def run(addresses: list[str], body: Body, max_per_shard: int = 4096) -> None:
    async def main() -> None:
        pool = Pool(PoolSettings(addresses=tuple(addresses), authkey=b"key"))
        await pool.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                while pool.readiness() is not None:
                    await asyncio.sleep(0.005)
                await body(pool, Sessions(pool, max_per_shard))
        finally:
            await pool.close()

    asyncio.run(main())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def say(session: Session, data: bytes) -> bytes:
    return (await session.advance([EngineEvent(0, data)])).data


def new(sessions: Sessions) -> Session:
    return sessions.new(RECIPE, 7, "trace")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "shard.sock")


@pytest.fixture
def soon_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_STAND_IN_AFTER_S", 0.05)


def test_a_stream_is_opened_advanced_and_closed(address: str) -> None:
    shard = Shard(address, 1)

    async def body(pool: Pool, sessions: Sessions) -> None:
        session = new(sessions)
        await session.open()
        assert await say(session, b"a") == b"a"
        assert await say(session, b"b") == b"ab"
        assert shard.streams.opened == [(RECIPE, b"")]
        assert (sessions.count, (await pool.counters())[0].sessions) == (1, 1)
        session.close()
        session.close()
        assert sessions.count == 0
        # Behind the notice on the same connection, so it was heard.
        assert (await pool.counters())[0].sessions == 0
        assert sessions.reopened == 0

    run([address], body)
    shard.stop()


def test_a_stream_is_opened_anew_in_a_successor(address: str) -> None:
    first = Shard(address, 1)

    async def body(pool: Pool, sessions: Sessions) -> None:
        session = new(sessions)
        await session.open()
        await say(session, b"a")
        await say(session, b"b")
        await asyncio.to_thread(first.stop)
        await until(lambda: pool.readiness() is not None)
        second = Shard(address, 2)
        assert await say(session, b"c") == b"abc"
        assert second.streams.opened == [(RECIPE, b"ab")]
        assert sessions.reopened == 1
        session.close()
        assert (await pool.counters())[0].sessions == 0
        await asyncio.to_thread(second.stop)

    run([address], body)


def test_events_of_a_shard_that_dies_of_another_cause_are_taken_once(address: str) -> None:
    first = Shard(address, 1)

    async def body(pool: Pool, sessions: Sessions) -> None:
        session = new(sessions)
        await session.open()
        await say(session, b"a")
        saying = asyncio.create_task(say(session, b"die"))
        await until(lambda: pool.readiness() is not None)
        streams = Streams()
        streams.died = True
        second = Shard(address, 2, streams)
        assert await saying == b"adie"
        assert await say(session, b"b") == b"adieb"
        await asyncio.to_thread(second.stop)

    run([address], body)
    first.stop()


def test_a_stream_that_ends_two_shards_is_given_up_and_no_other(address: str) -> None:
    shards = [Shard(address, 1)]

    async def body(pool: Pool, sessions: Sessions) -> None:
        poison, neighbour = new(sessions), new(sessions)
        await poison.open()
        await neighbour.open()
        await say(neighbour, b"a")
        saying = asyncio.create_task(say(poison, b"die!"))
        await until(lambda: pool.readiness() is not None)
        shards.append(Shard(address, 2))
        with pytest.raises(ShardLostTwice):
            await saying
        poison.close()
        shards.append(Shard(address, 3))
        assert await say(neighbour, b"b") == b"ab"

    run([address], body)
    for shard in shards:
        shard.stop()


def test_a_stream_that_got_on_between_two_ends_is_not_given_up(address: str) -> None:
    shards = [Shard(address, 1)]

    async def body(pool: Pool, sessions: Sessions) -> None:
        session = new(sessions)
        await session.open()
        for pid in (2, 3, 4):
            saying = asyncio.create_task(say(session, b"die"))
            await until(lambda: pool.readiness() is not None)
            streams = Streams()
            streams.died = True
            shards.append(Shard(address, pid, streams))
            assert (await saying).endswith(b"die")
            # What it said last did no harm there; the next one does.
            streams.died = False

    run([address], body)
    for shard in shards:
        shard.stop()


@pytest.mark.usefixtures("soon_away")
def test_a_stream_moves_while_its_shard_is_away(tmp_path: Path) -> None:
    addresses = [str(tmp_path / name) for name in ("0", "1")]
    left, other = Shard(addresses[0], 1), Shard(addresses[1], 2)

    async def body(pool: Pool, sessions: Sessions) -> None:
        session = new(sessions)
        await session.open()
        assert len(left.streams.opened) == 1
        await say(session, b"a")
        await asyncio.to_thread(left.stop)
        await until(lambda: pool.is_away(0))
        assert await say(session, b"b") == b"ab"
        assert other.streams.opened == [(RECIPE, b"a")]
        assert (sessions.count, sessions.reopened) == (1, 1)
        back = Shard(addresses[0], 3)
        await until(lambda: pool.readiness() is None)
        # The place in the shard it left was given back.
        new_one = new(sessions)
        await new_one.open()
        assert len(back.streams.opened) == 1
        for each in (session, new_one):
            each.close()
        assert sessions.count == 0
        counted = await pool.counters()
        assert (counted[0].sessions, counted[1].sessions) == (0, 0)
        await asyncio.to_thread(back.stop)

    run(addresses, body)
    other.stop()


@pytest.mark.usefixtures("soon_away")
def test_a_stream_waits_where_no_other_shard_can_take_it(address: str) -> None:
    first = Shard(address, 1)

    async def body(pool: Pool, sessions: Sessions) -> None:
        session = new(sessions)
        await session.open()
        await say(session, b"a")
        await asyncio.to_thread(first.stop)
        await until(lambda: pool.is_away(0))
        saying = asyncio.create_task(say(session, b"b"))
        await until(lambda: pool.stats()[0].in_flight)
        second = Shard(address, 2)
        assert await saying == b"ab"
        session.close()
        await asyncio.to_thread(second.stop)

    run([address], body)


def test_streams_are_spread_and_bounded(tmp_path: Path) -> None:
    addresses = [str(tmp_path / name) for name in ("0", "1")]
    shards = [Shard(path, 1) for path in addresses]

    async def body(pool: Pool, sessions: Sessions) -> None:
        taken = [new(sessions) for _ in range(4)]
        for session in taken:
            await session.open()
        assert [len(shard.streams.opened) for shard in shards] == [2, 2]
        with pytest.raises(Overloaded, match="2 streams open"):
            new(sessions)
        taken[2].close()
        await new(sessions).open()

    run(addresses, body, max_per_shard=2)
    for shard in shards:
        shard.stop()


def test_without_a_shard_streams_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        pool = Pool(PoolSettings(addresses=(str(tmp_path / "none"),), authkey=b"key"))
        with pytest.raises(ShardUnavailable, match="warming up"):
            new(Sessions(pool))

    asyncio.run(main())


def test_streams_of_a_gateway_that_leaves_are_forgotten(address: str) -> None:
    shard = Shard(address, 1)

    async def leave(pool: Pool, sessions: Sessions) -> None:
        for _ in range(3):
            await new(sessions).open()
        assert (await pool.counters())[0].sessions == 3

    async def look(pool: Pool, sessions: Sessions) -> None:
        while (await pool.counters())[0].sessions:
            await asyncio.sleep(0.005)

    run([address], leave)
    run([address], look)
    shard.stop()


def opening(session: str) -> OpenStream:
    return OpenStream(call_id=1, session=session, recipe=RECIPE, created=0, journal=b"")


def advancing(session: str, data: bytes) -> AdvanceStream:
    return AdvanceStream(call_id=1, session=session, events=[EngineEvent(0, data)])


def closing(session: str) -> CloseStream:
    return CloseStream(call_id=0, session=session)


def scheduler(streams: Streams, answered: Answered) -> Scheduler:
    return Scheduler(streams, answered, lambda _: None, TableCounters)


@pytest.fixture
def peers() -> Iterator[Peers]:
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        yield GatewayConnection(ours, 1), GatewayConnection(theirs, 1)


def test_work_forgets_the_streams_of_the_peer_that_leaves_alone(
    peers: Peers,
) -> None:
    leaving, staying = peers
    streams, replies = Streams(), []
    work = scheduler(streams, lambda peer, reply: replies.append((peer, reply)))
    for peer, session in ((leaving, "a"), (leaving, "b"), (staying, "c")):
        work.take(peer, opening(session))
    work.take(leaving, closing("b"))
    assert set(streams.taken) == {"a", "c"}
    work.take(leaving, advancing("a", b"slow"))
    assert work.waiting
    work.forget(leaving)
    assert (set(streams.taken), work.waiting) == ({"c"}, False)
    work.take(staying, advancing("c", b"x"))
    assert replies[-1][0] is staying
    assert [reply.fault for _, reply in replies] == [None] * 4


def test_work_stops_what_a_closed_stream_was_doing(
    peers: Peers,
) -> None:
    peer, _ = peers
    streams = Streams()
    replies: list[Reply] = []
    work = scheduler(streams, lambda _, reply: replies.append(reply))
    work.take(peer, opening("a"))
    work.take(peer, advancing("a", b"slow"))
    assert (work.waiting, len(replies)) == (True, 1)
    work.take(peer, closing("a"))
    assert (work.waiting, len(replies)) == (False, 1)
    work.take(peer, advancing("a", b"x"))
    fault = replies[-1].fault
    assert fault is not None
    error: DerenderError = fault.error()
    assert isinstance(error, StreamMissing)
