"""The framing, the handshake and the forkserver's ID, which `multiprocessing` does not document."""

import mmap
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import pytest

from shards.messages.channel import FrameReader, accept, connect, frame, header, listen

KEY = b"key"
SIZES = (0, 1, 16384, 16385, 1 << 20)


def _pair() -> tuple[Connection, socket.socket]:
    """The library's end of a socket pair, and ours."""
    theirs, ours = socket.socketpair()
    return Connection(theirs.detach()), ours


@pytest.mark.parametrize("size", SIZES)
def test_our_frames_are_read_by_the_library(size: int) -> None:
    connection, ours = _pair()
    message = b"x" * size
    with connection, ours:
        writer = threading.Thread(target=ours.sendall, args=(frame(message),))
        writer.start()
        assert connection.recv_bytes() == message
        writer.join()


@pytest.mark.parametrize("size", SIZES)
def test_the_librarys_frames_are_read_by_us(size: int) -> None:
    connection, ours = _pair()
    message = b"x" * size
    with ours:
        writer = threading.Thread(target=connection.send_bytes, args=(message,))
        writer.start()
        reader = FrameReader(max(SIZES))
        found: list[bytes] = []
        while not found:
            found += reader.feed(ours.recv(65536))
        writer.join()
        connection.close()
    assert found == [message]
    assert not reader.unfinished


def test_a_long_header_of_ours_is_read_by_the_library() -> None:
    connection, ours = _pair()
    with connection, ours:
        ours.sendall(b"\xff\xff\xff\xff" + (3).to_bytes(8, "big") + b"abc")
        assert connection.recv_bytes() == b"abc"


@pytest.mark.parametrize("size", [0x7FFFFFFF, 0x80000000])
def test_the_headers_of_huge_messages_are_the_librarys(size: int) -> None:
    sent: list[Any] = []

    class Headers(Connection):
        """Keeps what would be written; of a message its length alone."""

        def _send(self, buf: Any, write: Any = None) -> None:
            sent.append(bytes(buf) if len(buf) < 16 else len(buf))

    connection, ours = _pair()
    # Pages that nobody touches take no memory.
    with connection, ours, mmap.mmap(-1, size) as pages, memoryview(pages) as message:
        headers = Headers(connection.fileno(), readable=False)
        try:
            headers.send_bytes(message)
        finally:
            headers._handle = None  # type: ignore[attr-defined]
        length = _Length(size)
        assert b"".join(part for part in sent if isinstance(part, bytes)) == header(length)
        assert sent[-1] == size


class _Length(bytes):
    """Stands for a message of which only the length matters."""

    def __new__(cls, size: int) -> "_Length":
        made = super().__new__(cls)
        made.size = size
        return made

    size: int

    def __len__(self) -> int:
        return self.size


def test_the_librarys_client_gets_in(tmp_path: Path) -> None:
    address = str(tmp_path / "s")
    with listen(address) as listener:
        accepted: list[Connection] = []
        thread = threading.Thread(target=lambda: accepted.append(accept(listener, KEY)))
        thread.start()
        with Client(address, "AF_UNIX", KEY) as client:
            thread.join()
            with accepted[0] as connection:
                client.send_bytes(b"call")
                assert connection.recv_bytes() == b"call"


def test_we_get_in_at_the_librarys_listener(tmp_path: Path) -> None:
    address = str(tmp_path / "s")
    with Listener(address, "AF_UNIX", authkey=KEY) as listener:
        accepted: list[Any] = []
        thread = threading.Thread(target=lambda: accepted.append(listener.accept()))
        thread.start()
        with connect(address, KEY) as peer:
            thread.join()
            with accepted[0] as connection:
                peer.sendall(frame(b"call"))
                assert connection.recv_bytes() == b"call"


FORKSERVER = """
import os
import signal
from multiprocessing import forkserver
from shards.service.processes import WarmParent
parent = WarmParent(())
print(parent.pid)
forkserver.ensure_running()
first = parent.pid
with open(f"/proc/{first}/status") as status:
    print(f"PPid:\\t{os.getpid()}\\n" in status.read())
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
forkserver.ensure_running()
print(parent.pid not in (None, first))
parent.kill()
"""


def test_the_forkserver_is_a_child_of_the_id_that_is_read() -> None:
    # In a process of its own, which takes its forkserver with it.
    done = subprocess.run(
        [sys.executable, "-c", FORKSERVER], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["None", "True", "True"], done.stderr
