"""A shard's end of a connection: several messages per system call, whole and in order."""

import multiprocessing
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from shards.messages.channel import frame
from shards.shard.gateway_connection import GatewayConnection

Ends = tuple[GatewayConnection, Connection]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = multiprocessing.Pipe()
    peer = GatewayConnection(ours, max_frame_bytes=4_000_000)
    yield peer, theirs
    peer.close()
    theirs.close()


@pytest.mark.parametrize("count", [1, 3, 2000])
@pytest.mark.parametrize("size", [0, 1, 16_384])
def test_answers_go_out_whole_and_in_order(ends: Ends, count: int, size: int) -> None:
    peer, theirs = ends
    messages = [bytes((at + number) % 251 for at in range(size)) for number in range(3)]
    sent = [messages[number % 3] for number in range(min(count, 2_000_000 // (size + 1)))]
    for message in sent:
        peer.answer(message)
    writer = threading.Thread(target=peer.flush)
    writer.start()
    assert [theirs.recv_bytes() for _ in sent] == sent
    writer.join(5)


def test_a_long_answer_is_one_message(ends: Ends) -> None:
    peer, theirs = ends
    message = bytes(range(256)) * 12_000
    peer.answer(message)
    writer = threading.Thread(target=peer.flush)
    writer.start()
    assert theirs.recv_bytes() == message
    writer.join(5)


def test_what_has_come_is_read_at_once(ends: Ends) -> None:
    peer, theirs = ends
    for number in range(5):
        theirs.send_bytes(b"%d" % number)
    assert peer.read()
    assert list(peer.inbox) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_part_of_a_message_waits_for_its_rest(ends: Ends) -> None:
    peer, theirs = ends
    whole = frame(b"abcdef")
    theirs._send(whole[:7])  # type: ignore[attr-defined]
    assert peer.read()
    assert not peer.inbox
    assert peer.stalled_s > 0
    theirs._send(whole[7:])  # type: ignore[attr-defined]
    assert peer.read()
    assert list(peer.inbox) == [b"abcdef"]
    assert peer.stalled_s == 0


def test_a_peer_that_left_is_seen(ends: Ends) -> None:
    peer, theirs = ends
    theirs.close()
    assert not peer.read()


def test_too_long_a_message_is_refused(ends: Ends) -> None:
    peer, theirs = ends
    theirs._send(frame(b"x" * 5_000_000)[:100])  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="5000000 bytes"):
        peer.read()
