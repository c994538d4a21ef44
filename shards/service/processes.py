"""The processes a supervisor has, one class per kind: how each starts, ends and is told to stop."""

import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from core.protocol.backoff import Backoff
from shards.messages.orders import ShardSpec
from shards.messages.replies import Ready, ready_decoder
from shards.shard.entry import run_shard

_logger = logging.getLogger(__name__)

_STEADY_S = 30.0
_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 10.0


class RestartDelay:
    """Delay before a process is started again: none at first, doubling while it keeps dying."""

    def __init__(self) -> None:
        """Begin without delay."""
        self._at_once = True
        self._backoff = Backoff(_FIRST_DELAY_S, _LONGEST_DELAY_S)
        self._started_at = 0.0

    def started(self) -> None:
        """Note that the process starts."""
        self._started_at = time.monotonic()

    def next_delay_s(self) -> float:
        """Delay before the next start, after the process has ended."""
        if time.monotonic() - self._started_at > _STEADY_S:
            self._at_once = True
            self._backoff.reset()
        if self._at_once:
            self._at_once = False
            return 0.0
        return self._backoff.next_s()


class Shard:
    """One shard process, from the request to fork it until its end of the pipe closes.

    The pipe tells both sides of the other's end, also when the warmed parent is gone.
    """

    def __init__(self, spec: ShardSpec, process: ForkServerProcess, control: Connection) -> None:
        """Take over a process that has just been forked."""
        self.spec = spec
        self.pid = process.pid or 0
        self.forked_at = time.monotonic()
        self.ready: Ready | None = None
        self._process = process
        self._control = control

    def fileno(self) -> int:
        """Descriptor that is readable when the shard reports or ends."""
        return self._control.fileno()

    def hear(self) -> bool:
        """Read the report; False when the shard has ended."""
        try:
            self.ready = ready_decoder.decode(self._control.recv_bytes())
        except (EOFError, OSError):
            self._control.close()
            return False
        return True

    def exit_code(self) -> int | None:
        """Exit code after the end; None where the warmed parent took it to its grave."""
        self._process.join(0.2)
        return self._process.exitcode

    def ask_to_stop(self) -> None:
        """Have the shard end after the call it works on."""
        with contextlib.suppress(OSError):
            self._control.send_bytes(b"stop")

    def kill(self) -> None:
        """End the shard at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class WarmParent:
    """The forkserver whose preload holds vLLM and the model.

    Forking blocks until the parent is warm, so it happens in a thread; results are picked up with
    `take` once `fileno` is readable.
    """

    def __init__(self, preload: tuple[str, ...]) -> None:
        """Prepare the forkserver; `start` starts it.

        Args:
            preload: Modules to load before warming, so that forks need not.
        """
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*preload, "shards.shard.warm"])
        self._orders: queue.SimpleQueue[ShardSpec] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[ShardSpec, Shard | Exception]] = queue.SimpleQueue()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self.death: int | None = None
        """Descriptor that is readable once the forkserver has ended."""
        self._started_at = 0.0
        threading.Thread(target=self._work, name="forker", daemon=True).start()

    def start(self) -> None:
        """Start the forkserver now, or again where it has ended."""
        forkserver.ensure_running()
        self._started_at = time.monotonic()
        if self.death is not None:
            os.close(self.death)
        self.death = None if self.pid is None else os.pidfd_open(self.pid)

    def mend(self) -> None:
        """Start a forkserver that has ended anew, unless it ends again and again."""
        if time.monotonic() - self._started_at > _STEADY_S:
            _logger.error("the warmed parent ended; it is started anew, shards go on meanwhile")
            self.start()
        elif self.death is not None:
            _logger.error("the warmed parent ended soon after its start; next tried when needed")
            os.close(self.death)
            self.death = None

    @property
    def pid(self) -> int | None:
        """Process ID of the forkserver, None before it starts."""
        # multiprocessing has no public way to name it (3.11 to 3.14).
        pid: int | None = getattr(forkserver, "_forkserver")._forkserver_pid  # noqa: B009
        return pid

    def fileno(self) -> int:
        """Descriptor that is readable when a fork came out."""
        return self._wake_reader.fileno()

    def request(self, spec: ShardSpec) -> None:
        """Fork a shard as soon as the parent is warm."""
        self._orders.put(spec)

    def take(self) -> tuple[ShardSpec, Shard | Exception]:
        """The next fork that came out, or why it did not."""
        self._wake_reader.recv(1)
        return self._results.get()

    def kill(self) -> None:
        """End the forkserver at once, with what it was loading."""
        pid = self.pid
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _work(self) -> None:
        while True:
            spec = self._orders.get()
            self._results.put((spec, self._fork(spec)))
            self._wake_writer.send(b"\0")

    def _fork(self, spec: ShardSpec) -> Shard | Exception:
        ours, theirs = self._context.Pipe()
        pid = self.pid
        process = self._context.Process(target=run_shard, args=(spec, theirs), daemon=True)
        try:
            process.start()
        except (OSError, EOFError) as error:
            ours.close()
            return error
        finally:
            theirs.close()
        if pid not in (None, self.pid):
            _logger.warning("the warmed parent (pid %d) had ended; it was started anew", pid)
        return Shard(spec, process, ours)


class Gateway:
    """A gateway process. Its standard input brings its order and, by closing, our end."""

    def __init__(self, command: tuple[str, ...], order: bytes, listener: socket.socket) -> None:
        """Start the process and hand it the listening socket."""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=(listener.fileno(),)
        )
        self.pid = self._process.pid
        pipe = self._process.stdin
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(order + b"\n")
                pipe.flush()

    def exit_code(self) -> int | None:
        """Exit code, None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Have the gateway refuse new work and finish what it has."""
        self._process.terminate()

    def kill(self) -> None:
        """End the gateway at once."""
        self._process.kill()
        self._process.wait()
