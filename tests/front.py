"""A scripted engine as a process of its own, and what stands behind a front door under test.

With `DERENDER_TEST_ENGINE_URL` in the environment the tests of clients run against that engine, and
all tests that need the script or its faults are skipped. `DERENDER_TEST_ENGINE_MODEL` is the model
folder to serve then, and `DERENDER_TEST_ENGINE_NAME` the model's name at the engine.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx
import pytest

from tests.serving import DEMO_MODEL, ROOT, until

DEADLINE_S = 20.0
IMPATIENT = ("--engine-idle-timeout", "3", "--write-timeout", "3")
"""Flags of a service whose patience a test can wait out."""
_VARIABLE = "DERENDER_TEST_ENGINE_"


class Outside(NamedTuple):
    """An engine that was there before the tests."""

    url: str
    model: str
    flags: tuple[str, ...]


def _outside() -> Outside | None:
    url = os.environ.get(f"{_VARIABLE}URL")
    if not url:
        return None
    name = os.environ.get(f"{_VARIABLE}NAME")
    named = ("--engine-model", name) if name else ()
    # A real engine may take its time before the first token.
    flags = ("--engine-url", url, *named, "--engine-idle-timeout", "60")
    return Outside(url, os.environ.get(f"{_VARIABLE}MODEL") or str(DEMO_MODEL), flags)


OUTSIDE = _outside()
"""The engine the environment names, None for the scripted one."""

scripted = pytest.mark.skipif(OUTSIDE is not None, reason=f"{_VARIABLE}URL follows no script")


class EngineProcess:
    """`python -m loadtest.engine` on a free port, and what its tests ask of it.

    Attributes:
        url: Where it serves.
        http: A client of it.
    """

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self.process, self.url = self._start(0)
        self.http = httpx.Client(base_url=self.url, timeout=DEADLINE_S)

    def _start(self, port: int) -> "tuple[subprocess.Popen[str], str]":
        command = [sys.executable, "-m", "loadtest.engine", "--port", str(port), *self._flags]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"http://\S+", line)
        assert match, line
        return process, match[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.close()
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(5)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def start_again(self) -> None:
        """Come back at the same address; what was asked before is forgotten."""
        port = int(self.url.rpartition(":")[2])
        self.process, url = self._start(port)
        assert url == self.url

    def order(self, kind: str, *, after: int = 0, count: int = 1, status: int = 503) -> None:
        """Have the next generations fail in some way; see `loadtest.engine.faults`."""
        order = {"kind": kind, "after": after, "count": count, "status": status}
        answer = self.http.post("/faults", json=order)
        assert answer.status_code == 200, answer.text

    def clear(self) -> None:
        """Forget orders and requests."""
        self.order("silent", count=0)
        assert self.http.delete("/requests").is_success

    def requests(self) -> list[Any]:
        """The generate requests since `clear`, oldest first."""
        found: list[Any] = self.http.get("/requests").json()
        return found

    def request(self, request_id: str) -> Any:
        """The one whose ID ends so; it may still be on its way."""

        def found() -> list[Any]:
            return [
                each
                for each in self.requests()
                if each["headers"].get("x-request-id", "").endswith(request_id)
            ]

        until(found, DEADLINE_S, f"request {request_id}")
        return found()[-1]

    def await_outcome(self, request_id: str, outcome: str) -> None:
        """Wait until a request has ended so."""
        until(
            lambda: self.request(request_id)["outcome"] == outcome,
            DEADLINE_S,
            f"{request_id} to be {outcome}",
        )

    @property
    def stats(self) -> Any:
        """What it counts."""
        return self.http.get("/stats").json()

    def await_idle(self) -> None:
        """Wait until nothing is generated."""
        until(lambda: self.stats["in_flight"] == 0, DEADLINE_S, "an idle engine")


RECORDINGS = Path(__file__).parent / "fixtures" / "real_engine.jsonl.xz"
