"""Bounds the CPU time of calls where callers bring templates: one may never end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

CALL_CPU_S = 30.0
"""CPU time of one call, as long as vLLM lets one template take."""


def take_signal() -> Callable[[], AbstractContextManager[None]]:
    """Take SIGVTALRM: only in the main thread of a process of its own.

    Returns:
        A context per call; inside it TimeoutError is raised after `CALL_CPU_S`.
    """
    signal.signal(signal.SIGVTALRM, _too_long)
    return _limited


@contextmanager
def _limited() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, CALL_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"rendering took more than {CALL_CPU_S:g} s of CPU time")
