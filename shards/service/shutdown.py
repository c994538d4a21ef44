"""The end of a service: named steps, each with a deadline and a log line."""

import logging
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import cast

from shards.service.processes import Gateway, Shard, WarmParent
from shards.service.signals import END_SIGNALS, SignalRecord

_logger = logging.getLogger(__name__)

STOP_SHARDS_S = 0.7


class _HurryUp(Exception):
    """A second signal asks to end at once."""


def end(
    gateway: Gateway | None,
    shards: list[Shard],
    warm_parent: WarmParent,
    signals: SignalRecord,
    drain_s: float,
) -> None:
    """Refuse new work and finish requests, stop the shards, kill what is left.

    Args:
        gateway: None where none runs.
        shards: Those that run.
        warm_parent: Killed last.
        signals: A second one ends all at once.
        drain_s: How long the gateway may take.
    """
    ending = _Ending(gateway, shards, warm_parent, signals, drain_s)
    try:
        _step("drain the gateway", ending.drain_gateway)
        _step("stop the shards", ending.stop_shards)
    except _HurryUp:
        _logger.warning("second signal: killing what is left")
    _step("kill what is left", ending.kill_rest)


def _step(name: str, step: Callable[[], bool]) -> None:
    begun = time.monotonic()
    outcome = "done" if step() else "out of time"
    _logger.info("%s: %s after %.2f s", name, outcome, time.monotonic() - begun)


class _Ending:
    """What still runs."""

    def __init__(
        self,
        gateway: Gateway | None,
        shards: list[Shard],
        warm_parent: WarmParent,
        signals: SignalRecord,
        drain_s: float,
    ) -> None:
        self._drain_s = drain_s
        self._gateway = gateway
        self._shards = shards
        self._warm_parent = warm_parent
        self._signals = signals

    def drain_gateway(self) -> bool:
        gateway = self._gateway
        if gateway is None:
            return True
        gateway.ask_to_stop()
        return self._until(lambda: gateway.exit_code() is not None, self._drain_s)

    def stop_shards(self) -> bool:
        for shard in self._shards:
            shard.ask_to_stop()
        return self._until(lambda: not self._shards, STOP_SHARDS_S)

    def kill_rest(self) -> bool:
        if self._gateway and self._gateway.exit_code() is None:
            self._gateway.kill()
        for shard in self._shards:
            shard.kill()
        # A shard forked in this moment ends by itself once this process is gone.
        self._warm_parent.kill()
        return True

    def _until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for what a child's end can change."""
        deadline = time.monotonic() + timeout_s
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for source in wait(cast(list[int], [self._signals, *self._shards]), left):
                if isinstance(source, Shard) and not source.hear():
                    self._shards.remove(source)
            if END_SIGNALS.intersection(self._signals.take()):
                raise _HurryUp
        return True
