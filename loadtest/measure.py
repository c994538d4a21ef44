"""Statistics of samples, interleaved sampling, and what the kernel knows of a process."""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_KIB = 1024
_BURST = 8
"""Calls one side makes in a row."""


def median(samples: Sequence[float]) -> float:
    """The middle sample."""
    return statistics.median(samples)


def mean(samples: Sequence[float]) -> float:
    """The arithmetic mean."""
    return statistics.fmean(samples)


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that `percent` of all samples do not exceed."""
    ordered = sorted(samples)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def interleaved(
    sides: Sequence[Callable[[], float]], rounds: int, *, warm_up: int = 2
) -> list[list[float]]:
    """Call each side in turn, in short bursts, so that noise hits all alike.

    A server is used in runs of calls; one call at a time would measure each side with the caches
    the other one left.

    Args:
        sides: Each makes one measurement and returns it.
        rounds: Samples per side.
        warm_up: Calls before, whose samples are dropped.

    Returns:
        The samples of each side.
    """
    samples: list[list[float]] = [[] for _ in sides]
    for side in sides:
        for _ in range(warm_up):
            side()
    for begun in range(0, rounds, _BURST):
        for side, kept in zip(sides, samples, strict=True):
            kept += [side() for _ in range(min(_BURST, rounds - begun))]
    return samples


class ProcessEntry(NamedTuple):
    """A running process."""

    pid: int
    title: str


def session_processes(session: int) -> Iterator[ProcessEntry]:
    """Every process of a session, such as a server that `processes.launch` started."""
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


def cpu_model() -> str:
    """Name of the processor."""
    for line in (_PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"
