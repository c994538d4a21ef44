"""What is read of processes."""

import os

from loadtest.servers.procfs import private_bytes


def test_private_memory_of_a_process_is_read() -> None:
    assert 0 < private_bytes(os.getpid()) < 64e9
