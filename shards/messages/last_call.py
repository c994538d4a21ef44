"""Which call a shard works on, readable after its death: a few bytes of a file in memory.

A shard may hold several calls at once, so the order of their arrival does not tell which one it
died of. The file outlives its process; a successor overwrites it only with calls of its own.
"""

import mmap
import os
import struct
from pathlib import Path

_RECORD = struct.Struct("=QQ")


class CurrentCall:
    """The shard's side: notes the call it turns to."""

    def __init__(self, address: str) -> None:
        """Open the file beside a shard's socket."""
        descriptor = os.open(_path(address), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.truncate(descriptor, _RECORD.size)
            self._memory = mmap.mmap(descriptor, _RECORD.size)
        finally:
            os.close(descriptor)
        self._pid = os.getpid()

    def note(self, call_id: int) -> None:
        """Name the call that is worked on from here on; 0 for none."""
        _RECORD.pack_into(self._memory, 0, self._pid, call_id)


def last_call(address: str, pid: int) -> int | None:
    """The call a shard process worked on last; None where it left no word.

    Args:
        address: The shard's socket path.
        pid: The process that ended.
    """
    try:
        noted_by, call_id = _RECORD.unpack(_path(address).read_bytes())
    except (OSError, struct.error):
        return None
    return call_id or None if noted_by == pid else None


def _path(address: str) -> Path:
    return Path(f"{address}.current")
