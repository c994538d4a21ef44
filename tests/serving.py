"""Real services for tests: one session per service, so that every process of it can be found."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from loadtest.model.folder import MODEL_DIR

ROOT = Path(__file__).parent.parent
DEMO_MODEL = MODEL_DIR
PARSERS = (
    *("--tool-call-parser", "hermes", "--enable-auto-tool-choice"),
    *("--reasoning-parser", "qwen3"),
)
START_TIMEOUT_S = 110.0


def until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Poll a condition until it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {timeout_s} s")
        time.sleep(0.01)


class Service:
    """`derender serve` as a child process on a free port."""

    def __init__(
        self, log: Path, *flags: str, model: str = str(DEMO_MODEL), **environment: str
    ) -> None:
        self._log = log
        command = [sys.executable, "-m", "gateway.cli", "serve", model, "--port", "0", *flags]
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stderr=stream,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **environment},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pid in self.processes():
            _kill(pid)
        self.process.wait(10)

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        """Address from the log; known once the gateway listens."""
        until(lambda: self._address() or self.process.poll() is not None, 30, "listening")
        address = self._address()
        assert address, self.log
        return address

    def wait_until_serving(self) -> str:
        """Wait for health, and give the address."""
        url = self.url

        def serves() -> bool:
            assert self.process.poll() is None, self.log
            try:
                return httpx.get(f"{url}/health", timeout=5).status_code == 200
            except httpx.HTTPError:
                return False

        until(serves, START_TIMEOUT_S, "serving")
        return url

    def processes(self) -> dict[int, str]:
        """Titles of the living processes of this service by process ID."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _session_of(entry) == self.process.pid:
                title = _title(entry)
                if title:
                    found[int(entry.name)] = title
        return found

    def pid_of(self, title: str) -> int:
        """Process ID of the process with this title."""
        for pid, found in self.processes().items():
            if found == title:
                return pid
        raise AssertionError(f"no {title!r} in {self.processes()}")

    def kill(self, title: str) -> int:
        """Send SIGKILL to one process and wait until it is gone."""
        pid = self.pid_of(title)
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in self.processes(), 5, f"end of {title}")
        return pid

    def end(self, number: int, timeout_s: float = 5.0) -> int:
        """Signal the supervisor; its exit code, once nothing of the service is left."""
        begun = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        left = timeout_s - (time.monotonic() - begun)
        until(lambda: not self.processes(), left, "end of every process")
        return code

    def _address(self) -> str | None:
        match = re.search(r"listening on (http://\S+)", self.log)
        return match[1] if match else None


def _session_of(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[3])
    except (OSError, IndexError, ValueError):
        return -1


def _title(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").strip().decode()
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
