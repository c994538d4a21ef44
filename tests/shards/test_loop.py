"""A shard's server in a thread, with answers that are scripted in the call."""

import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from core.derender.live.streams import Outcome
from core.protocol.calls import Call, Cancel, DerenderChat, Stats, Work, call_encoder
from core.protocol.errors import BadRequest, FaultCode
from shards.messages import channel
from shards.messages.channel import FrameReader, connect, frame, listen
from shards.messages.counters import counters_decoder
from shards.messages.last_call import last_call
from shards.messages.logs import LogSettings
from shards.messages.orders import ShardSpec, TableLimits
from shards.messages.replies import Ready, Reply, reply_decoder
from shards.shard.server import ShardServer
from shards.shard.stream_table import StreamTable
from tests.shards.scripted import call


class ScriptedAnswers:
    """`refuse` refuses, `break` fails, `slow:N` takes N steps, anything else comes back."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def begin(self, order: Work) -> bytes | Generator[bool, None, bytes]:
        assert isinstance(order, DerenderChat)
        if order.generate == b"refuse":
            raise BadRequest("no", "field")
        if order.generate == b"break":
            raise RuntimeError("a fault of ours")
        word, _, number = order.generate.partition(b":")
        return self._slow(int(number)) if word == b"slow" else order.generate

    def _slow(self, steps: int) -> Generator[bool, None, bytes]:
        try:
            for _ in range(steps):
                # Longer than the interpreter's switch interval, so that the test's thread gets on.
                deadline = time.perf_counter() + 0.02
                while time.perf_counter() < deadline:
                    pass
                yield False
        finally:
            self.closed.set()
        return b"slow"

    def close_stream(self, session: str) -> None:
        return None


class Peer:
    """A gateway's end of a connection, blocking."""

    def __init__(self, address: str) -> None:
        self.socket = connect(address, b"key")
        self.socket.setblocking(True)
        self.socket.settimeout(10)
        self._reader = FrameReader(1 << 24)
        self._messages: list[bytes] = []

    def read(self) -> bytes:
        while not self._messages:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._messages += self._reader.feed(data)
        return self._messages.pop(0)

    def ask(self, order: Call) -> Reply:
        self.socket.sendall(frame(call_encoder.encode(order)))
        return reply_decoder.decode(self.read())


@pytest.fixture
def answers() -> ScriptedAnswers:
    return ScriptedAnswers()


@pytest.fixture
def table() -> StreamTable:
    return StreamTable(TableLimits(), time.monotonic)


@pytest.fixture
def address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: ScriptedAnswers, table: StreamTable
) -> Iterator[str]:
    monkeypatch.setattr(channel, "PEER_TIMEOUT_S", 0.2)
    path = str(tmp_path / "shard.sock")
    spec = ShardSpec(
        shard=0, address=path, authkey=b"key", max_frame_bytes=1000, logs=LogSettings()
    )
    ours, theirs = multiprocessing.Pipe()
    listener: socket.socket = listen(path)
    server = ShardServer(spec, theirs, listener, answers, table, Ready(shard=0, pid=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    yield path
    ours.close()
    thread.join(5)
    assert not thread.is_alive()
    server.close()
    listener.close()
    theirs.close()


def test_greets_and_answers(address: str) -> None:
    peer = Peer(address)
    assert b"\x00\x01" in peer.read()
    assert peer.ask(call(7, "hello")) == Reply(7, body=b"hello")
    peer.socket.close()


def test_faults_are_data_and_the_shard_goes_on(address: str) -> None:
    peer = Peer(address)
    peer.read()
    refused = peer.ask(call(1, "refuse")).fault
    assert refused is not None
    assert (refused.code, refused.param) == (FaultCode.INVALID_REQUEST, "field")
    broken = peer.ask(call(2, "break")).fault
    assert broken is not None
    assert broken.code is FaultCode.INTERNAL
    assert "a fault of ours" not in broken.message
    assert peer.ask(call(3, "fine")).body == b"fine"
    peer.socket.close()


@pytest.mark.parametrize("garbage", [frame(b"\xc1"), frame(b"x" * 2000)], ids=["kind", "size"])
def test_garbage_costs_the_peer_its_connection_only(address: str, garbage: bytes) -> None:
    bad, good = Peer(address), Peer(address)
    bad.read(), good.read()
    bad.socket.sendall(garbage)
    with pytest.raises((EOFError, ConnectionResetError)):
        bad.read()
    assert good.ask(call(1, "fine")).body == b"fine"
    for peer in (bad, good):
        peer.socket.close()


def test_a_peer_that_stops_inside_a_frame_is_dropped(address: str) -> None:
    stalled, good = Peer(address), Peer(address)
    stalled.read(), good.read()
    stalled.socket.sendall(frame(b"x" * 500)[:100])
    begun = time.monotonic()
    assert good.ask(call(1, "fine")).body == b"fine"
    assert time.monotonic() - begun < 5
    with pytest.raises((EOFError, ConnectionResetError)):
        stalled.read()
    for peer in (stalled, good):
        peer.socket.close()


def test_a_peer_that_does_not_read_is_dropped(address: str) -> None:
    deaf, good = Peer(address), Peer(address)
    deaf.read(), good.read()
    deaf.socket.settimeout(0.05)
    message = frame(call_encoder.encode(call(1, "x" * 900)))
    with pytest.raises(OSError):
        while True:
            deaf.socket.sendall(message)
    assert good.ask(call(1, "fine")).body == b"fine"
    for peer in (deaf, good):
        peer.socket.close()


def _send(peer: Peer, order: Call) -> None:
    peer.socket.sendall(frame(call_encoder.encode(order)))


def test_a_long_call_lets_others_pass(address: str) -> None:
    slow, quick = Peer(address), Peer(address)
    slow.read(), quick.read()
    _send(slow, call(1, "slow:100"))
    for number in range(2, 12):
        assert quick.ask(call(number, "quick")).body == b"quick"
    slow.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        slow.socket.recv(1)
    slow.socket.setblocking(True)
    assert reply_decoder.decode(slow.read()) == Reply(1, body=b"slow")
    for peer in (slow, quick):
        peer.socket.close()


def test_a_cancelled_call_stops_and_gets_no_reply(address: str, answers: ScriptedAnswers) -> None:
    peer = Peer(address)
    peer.read()
    _send(peer, call(1, "slow:100000"))
    _send(peer, Cancel(call_id=1))
    assert answers.closed.wait(5)
    assert peer.ask(call(2, "next")) == Reply(2, body=b"next")
    peer.socket.close()


def test_the_work_of_a_peer_that_leaves_stops(address: str, answers: ScriptedAnswers) -> None:
    peer = Peer(address)
    peer.read()
    _send(peer, call(1, "slow:100000"))
    peer.socket.close()
    assert answers.closed.wait(5)


def test_counters_are_told(address: str, table: StreamTable) -> None:
    table.count(Outcome.HIT)
    peer = Peer(address)
    peer.read()
    told = counters_decoder.decode(peer.ask(Stats(call_id=1)).body)
    assert (told.outcomes, told.sessions) == ({"hit": 1}, 0)
    peer.socket.close()


def test_the_call_worked_on_is_on_record(address: str) -> None:
    peer = Peer(address)
    peer.read()
    _send(peer, call(41, "slow:100000"))
    deadline = time.monotonic() + 5
    while last_call(address, os.getpid()) != 41:
        assert time.monotonic() < deadline
    assert last_call(address, os.getpid() + 1) is None
    peer.socket.close()
