"""The demo from its start to Ctrl-C, with everything it tells a reader to paste."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.servers.launching import port_is_free
from tests.serving import ROOT, until

PORTS = (8100, 8200)
EXAMPLES = ROOT / "tests" / "fixtures" / "protocol_examples"
START_TIMEOUT_S = 120.0
CALL_TIMEOUT_S = 30.0
END_TIMEOUT_S = 20.0
UNICODE = "the weather in Köln is fine: 21 °C ☀️."


class RunningDemo:
    """`make demo` without make."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "loadtest.demo"],
                cwd=ROOT,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def await_line(self, line: str) -> None:
        def shown() -> bool:
            assert self.process.poll() is None, self.output
            return line in self.output

        until(shown, START_TIMEOUT_S, line)

    def pasted(self, title: str) -> str:
        """The command under this comment, the comment included."""
        found = re.search(rf"^# {title}\n.+?\n\n(?=#|demo:)", self.output, re.MULTILINE | re.DOTALL)
        assert found, self.output
        return found[0]

    def sessions(self) -> set[int]:
        """The sessions its children lead."""
        return {session for _, parent, session in _processes() if parent == self.process.pid}


def _processes() -> Iterator[tuple[int, int, int]]:
    """Process ID, parent and session of every process that lives."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                yield int(entry.name), int(fields[1]), int(fields[3])


def _members(sessions: set[int]) -> list[int]:
    return [pid for pid, _, session in _processes() if session in sessions]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[RunningDemo]:
    for port in PORTS:
        if not port_is_free(port):
            pytest.skip(f"port {port}, which the demo and the examples use, is taken")
    running = RunningDemo(tmp_path / "log")
    try:
        yield running
    finally:
        for pid in _members(running.sessions() | {running.process.pid}):
            os.kill(pid, signal.SIGKILL)
        running.process.wait(5)


def _run(*command: str) -> str:
    run = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=CALL_TIMEOUT_S, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.timeout(START_TIMEOUT_S + 60)
def test_the_demo_and_what_it_tells_to_try(demo: RunningDemo) -> None:
    demo.await_line("until Ctrl-C")
    shown = demo.output
    assert re.search(r"reasoning \| The user wants .*\n +\| Let me call the tool\.\n", shown)
    assert 'tool call | get_weather {"city": "Paris", "days": 3}\n' in shown
    assert re.search(
        r" tokens \| \[[\d, ]+\]\nreasoning \| Two .*\n  content \| 2 \+ 2 = 4\n", shown
    )

    assert _run(sys.executable, str(EXAMPLES / "one_shot.py")).strip() == "2 + 2 = 4"
    content, usage = _run(sys.executable, str(EXAMPLES / "streamed.py")).rsplit("\n", 2)[:2]
    assert content.strip() == "2 + 2 = 4"
    assert "'completion_tokens': 21" in usage

    assert UNICODE in _run("sh", "-c", demo.pasted("the openai client"))
    events = _run("sh", "-c", demo.pasted("the events as they are"))
    assert events.startswith("data: {") and events.endswith("data: [DONE]\n\n")
    answer = _run("sh", "-c", demo.pasted("token IDs into an answer, without an engine"))
    assert "Hello from token IDs!" in answer

    sessions = demo.sessions()
    assert len(sessions) == 2
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(END_TIMEOUT_S) == 0, demo.output
    # What was killed at the end may take a moment to go.
    until(lambda: not _members(sessions), 2, "the end of every child")
