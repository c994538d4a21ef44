"""Framing and handshake."""

import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.messages.channel import FrameReader, accept, connect, frame, listen


@given(
    messages=st.lists(st.binary(max_size=40), max_size=6),
    cuts=st.lists(st.integers(min_value=1, max_value=17), min_size=1, max_size=8),
)
def test_any_cut_of_the_stream_gives_the_same_messages(
    messages: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(frame(message) for message in messages)
    reader, position, turn = FrameReader(100), 0, 0
    got: list[bytes] = []
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        got += reader.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert got == messages


def test_a_long_length_is_read() -> None:
    header = (-1).to_bytes(4, "big", signed=True) + (3).to_bytes(8, "big")
    assert list(FrameReader(10).feed(header + b"abc")) == [b"abc"]


@pytest.mark.parametrize("size", [11, 2**31 - 1, -2])
def test_a_length_out_of_bounds_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="bytes is over"):
        list(FrameReader(10).feed(size.to_bytes(4, "big", signed=True)))


def _accept_in_thread(
    address: Path, key: bytes
) -> tuple[threading.Thread, list[Connection | BaseException]]:
    listener = listen(str(address))
    outcome: list[Connection | BaseException] = []

    def run() -> None:
        with listener:
            try:
                outcome.append(accept(listener, key))
            except (OSError, EOFError, AuthenticationError) as error:
                outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_messages_pass_both_ways(tmp_path: Path) -> None:
    thread, outcome = _accept_in_thread(tmp_path / "s", b"key")
    peer = connect(str(tmp_path / "s"), b"key")
    thread.join(5)
    shard = outcome[0]
    assert isinstance(shard, Connection)
    with peer, shard:
        peer.setblocking(True)
        peer.sendall(frame(b"call"))
        assert shard.recv_bytes() == b"call"
        shard.send_bytes(b"x" * 100_000)
        reader = FrameReader(200_000)
        got: list[bytes] = []
        while not got:
            got += reader.feed(peer.recv(65536))
        assert got == [b"x" * 100_000]


def test_a_wrong_key_does_not_get_in(tmp_path: Path) -> None:
    thread, outcome = _accept_in_thread(tmp_path / "s", b"right")
    with pytest.raises((AuthenticationError, OSError, EOFError)):
        connect(str(tmp_path / "s"), b"wrong")
    thread.join(5)
    assert isinstance(outcome[0], BaseException)


def test_listening_replaces_what_a_dead_shard_left(tmp_path: Path) -> None:
    with listen(str(tmp_path / "s")):
        pass
    with listen(str(tmp_path / "s")):
        assert (tmp_path / "s").exists()
