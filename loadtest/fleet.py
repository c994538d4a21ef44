"""The servers of a benchmark run: the reference and ours on the same model, with the same flags."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from loadtest import reference
from loadtest.keepalive import KeepAlive
from loadtest.processes import free_port, launch, stop, wait_healthy
from loadtest.workload import MODEL

START_TIMEOUT_S = 300.0
PARSERS = (
    *("--tool-call-parser", "hermes"),
    *("--reasoning-parser", "qwen3", "--enable-auto-tool-choice"),
)


class Server(NamedTuple):
    """One running server."""

    process: Popen[bytes]
    url: str
    start_s: float
    """From its launch to its first answer."""


class Pair(NamedTuple):
    """Both sides of a comparison, each with a connection."""

    reference: KeepAlive
    ours: KeepAlive


class Fleet:
    """Starts servers when a group first asks for them and ends them with the run."""

    def __init__(
        self, model_dir: Path, log_dir: Path, stack: ExitStack, *, max_model_len: int, shards: int
    ) -> None:
        """Say how servers are started.

        Args:
            model_dir: Model folder of both sides.
            log_dir: Folder that gets each server's output.
            stack: Ends what was started.
            max_model_len: Of every server.
            shards: Of ours, where a group does not choose.
        """
        self.model_dir = model_dir
        self.log_dir = log_dir
        self._stack = stack
        self.max_model_len = max_model_len
        self._flags = ("--served-model-name", MODEL, "--max-model-len", str(max_model_len))
        self._shards = shards
        self._pairs: dict[bool, Pair] = {}

    def pair(self, *, parsers: bool = True) -> Pair:
        """Both servers, with or without parsers."""
        if parsers not in self._pairs:
            flags = PARSERS if parsers else ()
            theirs = self._stack.enter_context(self.reference(flags))
            ours = self._stack.enter_context(self.ours(flags))
            sides = (self._stack.enter_context(KeepAlive(side.url)) for side in (theirs, ours))
            self._pairs[parsers] = Pair(*sides)
        return self._pairs[parsers]

    def log(self) -> str:
        """What our services logged so far."""
        return (self.log_dir / "ours.log").read_text(encoding="utf-8")

    @contextmanager
    def reference(self, flags: Sequence[str] = PARSERS) -> Iterator[Server]:
        """Run the reference for the block."""
        begun = time.monotonic()
        log_path = self.log_dir / "reference.log"
        every = [*self._flags, *flags]
        with reference.start(self.model_dir, every, log_path=log_path) as (process, url):
            yield Server(process, url, time.monotonic() - begun)

    @contextmanager
    def engine(self, tokens_per_second: float = 0.0, port: int = 0) -> Iterator[Server]:
        """Run a scripted engine for the block; without a pace, as fast as it can."""
        begun = time.monotonic()
        port = port or free_port()
        command = [sys.executable, "-m", "loadtest.engine", "--model-dir", str(self.model_dir)]
        command += ["--port", str(port), "--script", "long", "--tokens-only"]
        command += ["--tokens-per-second", str(tokens_per_second)]
        url = f"http://127.0.0.1:{port}"
        with (self.log_dir / "engine.log").open("ab") as log:
            process = launch(command, output=log)
        try:
            wait_healthy("scripted engine", process, url, START_TIMEOUT_S)
            yield Server(process, url, time.monotonic() - begun)
        finally:
            stop(process)

    @contextmanager
    def ours(self, flags: Sequence[str] = PARSERS, *, shards: int = 0) -> Iterator[Server]:
        """Run one service for the block."""
        with self.replicas(1, flags, shards=shards) as servers:
            yield servers[0]

    @contextmanager
    def replicas(
        self, count: int, flags: Sequence[str] = PARSERS, *, shards: int = 0
    ) -> Iterator[list[Server]]:
        """Run several services of ours, started at once, for the block."""
        begun = time.monotonic()
        with ExitStack() as stack:
            launched = [self._launch(stack, flags, shards or self._shards) for _ in range(count)]
            for process, url in launched:
                wait_healthy("derender service", process, url, START_TIMEOUT_S)
            elapsed = time.monotonic() - begun
            yield [Server(process, url, elapsed) for process, url in launched]

    def _launch(
        self, stack: ExitStack, flags: Sequence[str], shards: int
    ) -> tuple[Popen[bytes], str]:
        port = free_port()
        command = [sys.executable, "-m", "gateway.cli", "serve", str(self.model_dir)]
        command += [*self._flags, *flags, "--port", str(port), "--shards", str(shards)]
        with (self.log_dir / "ours.log").open("ab") as log:
            process = launch(command, output=log, extra_env=reference.QUIET)
        stack.callback(stop, process)
        return process, f"http://127.0.0.1:{port}"
