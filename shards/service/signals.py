"""Signals as a record: handlers write nothing but the number, the main loop decides."""

import signal
import socket
from types import FrameType, TracebackType
from typing import Self

END_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})

_RECORDED = (*END_SIGNALS, signal.SIGCHLD)


class SignalRecord:
    """Collects SIGINT, SIGTERM and SIGCHLD while entered; waits like a connection."""

    def __init__(self) -> None:
        """Make the pair that wakes a waiting loop."""
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        """Install the handlers; main thread only."""
        for number in _RECORDED:
            self._previous[number] = signal.signal(number, self._record)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put the former handlers back and forget the record."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """Descriptor that is readable while something is recorded."""
        return self._reader.fileno()

    def push(self, number: int) -> None:
        """Record a signal."""
        try:
            self._writer.send(bytes((number,)))
        except BlockingIOError:
            return  # The record is full of signals nobody read; one more adds nothing.

    def take(self) -> list[int]:
        """Hand out what was recorded since the last call."""
        try:
            return list(self._reader.recv(4096))
        except BlockingIOError:
            return []

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.push(number)
