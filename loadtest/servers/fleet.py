"""The servers of one run: reference, engine and ours, on the same model with the same flags."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from loadtest.servers import reference
from loadtest.servers.launching import (
    ServerStartError,
    free_port,
    launch,
    serving,
    stop,
    wait_healthy,
)

START_TIMEOUT_S = 300.0
SERVED_NAME = "bench"
"""The model's name at every server."""
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


class Fleet:
    """Starts servers and ends them with the block that asked for them."""

    def __init__(self, model_dir: Path, log_dir: Path, *, max_model_len: int, shards: int) -> None:
        """Say how servers are started.

        Args:
            model_dir: Model folder of every server.
            log_dir: Folder that gets each server's output.
            max_model_len: Of every server.
            shards: Of ours, where the caller does not choose.
        """
        self.model_dir = model_dir
        self.log_dir = log_dir
        self._max_model_len = max_model_len
        self._flags = ("--served-model-name", SERVED_NAME, "--max-model-len", str(max_model_len))
        self._shards = shards

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
        with self._serving("scripted engine", "engine.log", command, port) as (process, url):
            yield Server(process, url, time.monotonic() - begun)

    @contextmanager
    def rust(self) -> Iterator[Server]:
        """Run vLLM's Rust render server for the block.

        Raises:
            ServerStartError: vLLM is not installed, or the server did not come up.
        """
        begun = time.monotonic()
        spec = find_spec("vllm")
        if spec is None or spec.origin is None:
            raise ServerStartError("vllm is not installed")
        port = free_port()
        command = [str(Path(spec.origin).with_name("vllm-rs")), "render", str(self.model_dir)]
        command += [*PARSERS[:4], "--port", str(port), "--max-model-len", str(self._max_model_len)]
        with self._serving("Rust server", "rust.log", command, port) as (process, url):
            yield Server(process, url, time.monotonic() - begun)

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

    def _serving(
        self, name: str, log_name: str, command: Sequence[str], port: int
    ) -> AbstractContextManager[tuple[Popen[bytes], str]]:
        log_path = self.log_dir / log_name
        return serving(name, command, port=port, log_path=log_path, timeout_s=START_TIMEOUT_S)

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
