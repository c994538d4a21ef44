"""A gateway's connection as a shard sees it: calls in, replies out, in few system calls.

Under load several calls wait on a connection; they are read at once, and their replies are written
at once.
"""

import os
import time
from collections import deque
from multiprocessing.connection import Connection

from shards.messages.channel import FrameReader, header

_READ_BYTES = 1 << 18
_MOST_BUFFERS = 512
"""Fewer than a system call takes."""


class GatewayConnection:
    """One connection.

    Attributes:
        inbox: Messages read and not taken yet, oldest first.
    """

    def __init__(self, connection: Connection, max_frame_bytes: int) -> None:
        """Take over a connection that passed the handshake.

        Args:
            connection: Blocking; a write that stalls for too long raises OSError.
            max_frame_bytes: Longest message accepted.
        """
        self.inbox: deque[bytes] = deque()
        self._connection = connection
        self._descriptor = connection.fileno()
        self._reader = FrameReader(max_frame_bytes)
        self._outbox: list[bytes] = []
        self._read_at = 0.0

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._descriptor

    @property
    def stalled_s(self) -> float:
        """Seconds since the peer stopped inside a message; 0 between messages."""
        return time.monotonic() - self._read_at if self._reader.unfinished else 0.0

    def read(self) -> bool:
        """Read what has come; False where the peer has left.

        Raises:
            OSError: The connection is broken.
            ValueError: A message is longer than accepted.
        """
        data = os.read(self._descriptor, _READ_BYTES)
        self.inbox.extend(self._reader.feed(data))
        if self._reader.unfinished:
            self._read_at = time.monotonic()
        return bool(data)

    def answer(self, message: bytes) -> None:
        """Keep a message for the next `flush`."""
        self._outbox += (header(message), message)

    def flush(self) -> None:
        """Write what is kept.

        Raises:
            OSError: The peer left, or stopped reading for `channel.PEER_TIMEOUT_S`.
        """
        rest, self._outbox = self._outbox, []
        while rest:
            batch = [memoryview(part) for part in rest[:_MOST_BUFFERS]]
            del rest[:_MOST_BUFFERS]
            _write_all(self._descriptor, batch)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _write_all(descriptor: int, parts: list[memoryview]) -> None:
    while parts:
        sent = os.writev(descriptor, parts)
        done = 0
        while done < len(parts) and sent >= len(parts[done]):
            sent -= len(parts[done])
            done += 1
        del parts[:done]
        if parts:
            parts[0] = parts[0][sent:]
