"""One raw HTTP/1.1 connection that posts JSON, so that a measurement is the server's time.

`http.client` and httpx cost as much as the calls measured here; a socket costs some ten
microseconds, the same for every server.
"""

import socket
import time
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

_BUFFER = 1 << 20
_TIMEOUT_S = 600.0
_IDLE_S = 2.0
"""Servers close connections that idle for some seconds; an older one is replaced before a call."""


class TimedAnswer(NamedTuple):
    """One answered call."""

    seconds: float
    """From the first byte sent to the last byte received."""
    sent: int
    """Bytes of the body that was posted."""
    answer: bytes


class PostError(Exception):
    """A call was not answered with 200."""


def request_bytes(host: str, path: str, body: bytes) -> bytes:
    """A whole POST request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def content_length(head: bytes) -> int:
    """Length that an answer's head announces.

    Raises:
        PostError: It announces none.
    """
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise PostError("the answer has no content-length")


def check_status(head: bytes, body: bytes) -> None:
    """Refuse any status but 200.

    Raises:
        PostError: With the status and the beginning of the body.
    """
    status = int(head.split(b" ", 2)[1])
    if status != HTTPStatus.OK:
        raise PostError(f"status {status}: {body[:300].decode(errors='replace')}")


class KeepAlive:
    """A connection to one server, kept open between calls.

    Attributes:
        url: Base URL of the server.
    """

    def __init__(self, url: str) -> None:
        """Name the server by its base URL."""
        self.url = url
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._host = parts.netloc
        self._socket: socket.socket | None = None
        self._used_at = 0.0

    def post(self, path: str, body: bytes) -> TimedAnswer:
        """Post a body and read the whole answer.

        Raises:
            PostError: The answer is not a 200.
        """
        request = request_bytes(self._host, path, body)
        connection = self._connected()
        begun = time.perf_counter()
        connection.sendall(request)
        head, answer = _read_answer(connection)
        seconds = time.perf_counter() - begun
        self._used_at = time.monotonic()
        check_status(head, answer)
        return TimedAnswer(seconds, len(body), answer)

    def abort(self) -> None:
        """End a call that another thread waits for; the server sees its client go."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def _connected(self) -> socket.socket:
        if self._socket is None or time.monotonic() - self._used_at > _IDLE_S:
            self.close()
            self._socket = socket.create_connection(self._address, timeout=_TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket


def _read_answer(connection: socket.socket) -> tuple[bytes, bytes]:
    """Read the head and the body of an answer."""
    received = connection.recv(_BUFFER)
    while (end := received.find(b"\r\n\r\n")) < 0:
        received += _more(connection)
    head = received[:end]
    parts = [received[end + 4 :]]
    missing = content_length(head) - len(parts[0])
    while missing > 0:
        parts.append(_more(connection))
        missing -= len(parts[-1])
    return head, b"".join(parts)


def _more(connection: socket.socket) -> bytes:
    if data := connection.recv(_BUFFER):
        return data
    raise PostError("the server closed the connection")
