"""The framed channel between a gateway worker and a shard.

AF_UNIX stream sockets in a private directory, the mutual HMAC handshake of `multiprocessing`, and
its framing: a signed 32-bit big-endian length before each message, or -1 and an unsigned 64-bit
length for messages over 2 GiB. No pickled object crosses.

Neither handshake nor framing is documented: `tests/contracts/test_multiprocessing.py` holds both.
"""

import os
import socket
import struct
from collections.abc import Iterator
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path

_SHORT = struct.Struct("!i")
_LONG = struct.Struct("!Q")
_SHORT_MAX = 0x7FFFFFFF
_BUFFER_BYTES = 1 << 20
_TIMEVAL = struct.Struct("@ll")

HANDSHAKE_TIMEOUT_S = 5.0
"""How long a peer may take over one step of the handshake."""

PEER_TIMEOUT_S = 5.0
"""How long a peer may stop reading or writing in the middle of a frame before it is dropped."""


def listen(address: str) -> socket.socket:
    """Listen on a socket path, replacing what a dead predecessor left there."""
    Path(address).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(64)
    return listener


def accept(listener: socket.socket, authkey: bytes) -> Connection:
    """Accept one peer and prove both sides hold the key.

    Raises:
        OSError, EOFError, AuthenticationError: The peer left, stalled or does not hold the key.
    """
    peer, _ = listener.accept()
    connection = _connection(peer, HANDSHAKE_TIMEOUT_S)
    try:
        deliver_challenge(connection, authkey)
        answer_challenge(connection, authkey)
    except BaseException:
        connection.close()
        raise
    _set_options(connection.fileno(), PEER_TIMEOUT_S)
    return connection


def connect(address: str, authkey: bytes) -> socket.socket:
    """Connect to a shard and pass the handshake; blocks up to the handshake timeout.

    Returns:
        The socket, non-blocking, ready for an event loop.

    Raises:
        OSError, EOFError, AuthenticationError: Nobody listens, or the handshake failed.
    """
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _set_options(peer.fileno(), HANDSHAKE_TIMEOUT_S)
        peer.connect(address)
    except BaseException:
        peer.close()
        raise
    connection = _connection(peer, HANDSHAKE_TIMEOUT_S)
    try:
        answer_challenge(connection, authkey)
        deliver_challenge(connection, authkey)
        ready = socket.socket(fileno=os.dup(connection.fileno()))
    finally:
        connection.close()
    ready.setblocking(False)
    return ready


def header(message: bytes) -> bytes:
    """The length to send before a message."""
    size = len(message)
    return _SHORT.pack(-1) + _LONG.pack(size) if size > _SHORT_MAX else _SHORT.pack(size)


def frame(message: bytes) -> bytes:
    """Put the length before a message."""
    return header(message) + message


class FrameReader:
    """Cuts a byte stream into messages. Holds at most one unfinished message.

    Args:
        max_bytes: Longest message accepted.
    """

    def __init__(self, max_bytes: int) -> None:
        """Start at a message boundary."""
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that `data` completes.

        Raises:
            ValueError: A message is longer than accepted.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while (bounds := self._bounds(start)) is not None:
                begin, end = bounds
                if end > len(buffer):
                    return
                start = end
                yield bytes(buffer[begin:end])
        finally:
            del buffer[:start]

    @property
    def unfinished(self) -> bool:
        """Whether part of a message is held."""
        return bool(self._buffer)

    def _bounds(self, start: int) -> tuple[int, int] | None:
        """Where the message at `start` begins and ends; None while its length is unknown."""
        buffer = self._buffer
        begin = start + _SHORT.size
        if len(buffer) < begin:
            return None
        size: int = _SHORT.unpack_from(buffer, start)[0]
        if size == -1:
            if len(buffer) < begin + _LONG.size:
                return None
            size = _LONG.unpack_from(buffer, begin)[0]
            begin += _LONG.size
        if not 0 <= size <= self._max_bytes:
            raise ValueError(f"a message of {size} bytes is over the {self._max_bytes} accepted")
        return begin, begin + size


def _connection(peer: socket.socket, timeout_s: float) -> Connection:
    peer.setblocking(True)
    _set_options(peer.fileno(), timeout_s)
    return Connection(peer.detach())


def _set_options(descriptor: int, timeout_s: float) -> None:
    """Bound each blocking read and write; one that takes longer raises BlockingIOError."""
    seconds, fraction = divmod(timeout_s, 1)
    value = _TIMEVAL.pack(int(seconds), int(fraction * 1_000_000))
    with socket.socket(fileno=os.dup(descriptor)) as borrowed:
        borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
