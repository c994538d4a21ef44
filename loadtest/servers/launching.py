"""Child processes that serve HTTP: start one, wait until it is healthy, end it with its group."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from typing import IO

POLL_S = 0.1
STOP_TIMEOUT_S = 10.0

# Servers on this machine are never reached through a proxy.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerStartError(Exception):
    """A server ended, or was not healthy in time, before it served anything."""


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(port: int) -> bool:
    """Tell whether a server could listen on `port` of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def launch(
    command: Sequence[str],
    *,
    output: IO[bytes] | None = None,
    extra_env: Mapping[str, str] | None = None,
) -> Popen[bytes]:
    """Start `command` in a session of its own, so that only `stop` ends it and all its children.

    Output goes to `output`, or to this process's own streams when it is missing.
    """
    return Popen(
        command,
        env={**os.environ, **(extra_env or {})},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        start_new_session=True,
    )


def wait_healthy(name: str, process: Popen[bytes], url: str, timeout_s: float) -> None:
    """Wait until `GET {url}/health` answers 200.

    Raises:
        ServerStartError: `process` ended, or `timeout_s` passed.
    """
    deadline = time.monotonic() + timeout_s
    while not is_healthy(url):
        if (code := process.poll()) is not None:
            raise ServerStartError(f"the {name} ended with exit code {code} while starting")
        if time.monotonic() > deadline:
            raise ServerStartError(f"the {name} was not healthy after {timeout_s:.0f} s")
        time.sleep(POLL_S)


def is_healthy(url: str) -> bool:
    """Tell whether `GET {url}/health` answers 200 right away."""
    try:
        with _direct.open(f"{url}/health", timeout=2.0) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def stop(process: Popen[bytes], timeout_s: float = STOP_TIMEOUT_S) -> int:
    """Ask `process` to end, wait for it, then kill what is left of its group.

    Returns:
        The exit code of the process, negative when a signal ended it.
    """
    if process.poll() is None:
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


@contextmanager
def serving(
    name: str,
    command: Sequence[str],
    *,
    port: int,
    log_path: Path,
    timeout_s: float,
    extra_env: Mapping[str, str] | None = None,
) -> Iterator[tuple[Popen[bytes], str]]:
    """Run a command that serves on `port` for the block; its process and base URL, once healthy.

    Args:
        name: What to call it in an error.
        command: The command line, `port` included.
        port: Where it serves.
        log_path: File that its output is added to.
        timeout_s: How long it may take to be healthy.
        extra_env: Added to this process's environment.

    Raises:
        ServerStartError: It ended, or was not healthy in time.
    """
    url = f"http://127.0.0.1:{port}"
    with log_path.open("ab") as log:
        process = launch(command, output=log, extra_env=extra_env)
    try:
        wait_healthy(name, process, url, timeout_s)
        yield process, url
    finally:
        stop(process)
