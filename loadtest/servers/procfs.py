"""What the kernel knows of a server's processes: titles, memory, time on a processor."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_KIB = 1024


class ProcessEntry(NamedTuple):
    """A running process."""

    pid: int
    title: str


def session_processes(session: int) -> Iterator[ProcessEntry]:
    """Every process of a session, such as a server that `launching.launch` started."""
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if os.getsid(int(folder.name)) == session:
                title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").strip()
                yield ProcessEntry(int(folder.name), title.decode(errors="replace"))
        except (OSError, ProcessLookupError):
            continue


def titled(session: int, title: str) -> list[ProcessEntry]:
    """The processes of a session whose title begins so."""
    return [entry for entry in session_processes(session) if entry.title.startswith(title)]


def private_bytes(pid: int) -> int:
    """Memory that belongs to this process alone."""
    return sum(_rollup(pid, "Private_"))


def resident_bytes(pid: int) -> int:
    """Memory of the process that is in RAM, shared pages included."""
    return sum(_rollup(pid, "Rss:"))


def _rollup(pid: int, prefix: str) -> Iterator[int]:
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith(prefix):
            yield int(line.split()[1]) * _KIB


def cpu_seconds(pid: int) -> float:
    """Time the threads of a process have run on a processor so far."""
    tasks = (_PROC / str(pid) / "task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
