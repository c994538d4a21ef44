"""The warmed parent: the forkserver imports this, and shards are forked from what it leaves.

Importing does work only where the supervisor left a `WarmOrder` in the environment. It never
raises: a failure is kept as a line in `outcome`, and each shard reports it.
"""

import ctypes
import gc
import importlib
import logging
import os
import signal
import time
from pathlib import Path

import msgspec
from setproctitle import setproctitle

from shards.messages.logs import configure
from shards.messages.orders import WARM_VARIABLE, WarmOrder

_logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


class Warmed(msgspec.Struct, frozen=True, kw_only=True):
    """What warming left behind."""

    pid: int
    answerer: object = None
    """A `core.answerer.Answerer`, which cannot be named here without loading vLLM."""
    failure: str | None = None
    """Why there is none, in one line."""


class _Steps:
    """Logs each step when it starts, and how long the one before took."""

    def __init__(self) -> None:
        self._begun = self._step_begun = time.monotonic()
        self._step: str | None = None

    def __call__(self, step: str) -> None:
        self.done()
        self._step, self._step_begun = step, time.monotonic()
        _logger.info("%s ...", step)

    def done(self) -> None:
        if self._step:
            _logger.info("%s: %.1f s", self._step, time.monotonic() - self._step_begun)
            self._step = None

    @property
    def total_s(self) -> float:
        return time.monotonic() - self._begun


def warm(order: WarmOrder) -> Warmed:
    """Load vLLM and the model once, for every shard."""
    steps = _Steps()
    pid = os.getpid()
    vllm_logger = logging.getLogger("vllm")
    if order.logs.level != "DEBUG":
        # While it loads, vLLM warns about the GPU that is missing on purpose.
        vllm_logger.setLevel(logging.ERROR)
    # Nothing that importing makes is garbage; looking for some costs seconds.
    gc.disable()
    try:
        steps("importing vLLM (about 15 s)")
        # Modules of vLLM read the platform while they are imported, so it is set before them.
        importlib.import_module("core.vllm_adapter.patches").install()
        loading = importlib.import_module("shards.shard.loading")
        built = loading.build(order.options, steps, render=order.render)
    except Exception as error:
        _logger.debug("warming failed", exc_info=True)
        return Warmed(pid=pid, failure=f"{type(error).__name__}: {_first_line(error)}")
    finally:
        vllm_logger.setLevel(logging.NOTSET)
    steps.done()
    if isinstance(built, str):
        return Warmed(pid=pid, failure=built)
    gc.collect()
    gc.freeze()
    gc.enable()
    threads = len(list(Path("/proc/self/task").iterdir()))
    _logger.debug("warm with %d threads", threads)
    _logger.info("warm after %.1f s", steps.total_s)
    return Warmed(pid=pid, answerer=built)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")


def _end_with(supervisor_pid: int) -> None:
    """End when the supervisor ends, also in the middle of an import."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        os._exit(1)


def _warm_from_environment() -> Warmed | None:
    text = os.environ.get(WARM_VARIABLE)
    if text is None:
        return None
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setproctitle("derender: warm parent")
    order = msgspec.json.decode(text, type=WarmOrder)
    configure("warm parent", order.logs)
    _end_with(order.supervisor_pid)
    try:
        return warm(order)
    except BaseException as error:  # noqa: BLE001 - a SystemExit here would end the forkserver
        return Warmed(pid=os.getpid(), failure=f"{type(error).__name__}: {_first_line(error)}")


outcome: Warmed | None = _warm_from_environment()
