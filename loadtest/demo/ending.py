"""How a signal ends the demo."""

import signal
from types import FrameType


class Ending:
    """Turns signals into an exit that unwinds, but never between a start and its clean-up."""

    def __init__(self, exit_code: int) -> None:
        """Take over the signals that end a program in a terminal."""
        self._exit_code = exit_code
        self._armed = False
        self._due = False
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._record)

    def arm(self) -> None:
        """Exit on the next signal, or now when there was one."""
        self._armed = True
        if self._due:
            raise SystemExit(self._exit_code)

    def disarm(self) -> None:
        """Only record signals."""
        self._armed = False

    def _record(self, signum: int, frame: FrameType | None) -> None:
        self._due = True
        if self._armed:
            self._armed = False
            raise SystemExit(self._exit_code)
