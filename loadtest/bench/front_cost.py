"""Groups that look at the front door: what it adds to an engine's own times, and what it costs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from loadtest.bench.run import PROMPT_TOKENS, BenchRun
from loadtest.bench.stream_crowd import StreamsResult
from loadtest.bench.workload import CHAT_REQUEST
from loadtest.report.row import FigureRow
from loadtest.report.samples import median
from loadtest.report.table import Table
from loadtest.servers.fleet import PARSERS, Server
from loadtest.servers.launching import free_port
from loadtest.servers.procfs import cpu_seconds, titled

_CHAT = "/v1/chat/completions"
_GENERATE = "/inference/v1/generate"
_LATENCY_TOKENS = 256
_BURST = 16
_WARM_UP = 4
_CROWDS = ((1, 100.0), (32, 30.0), (256, 30.0))
"""Streams, and the engine's tokens per second for each of them."""
_CROWD_SECONDS = 12.0
_FULL_SPEED_STREAMS = 32
_STEP_S = 3.0
_MOST_STEPS_PER_S = 1000.0
"""More would be a load of their own."""
_AT_MOST_ADDED = 3.0


def front_latency(run: BenchRun) -> list[FigureRow]:
    """One stream at a time as fast as the engine can: through the front door, and without it."""
    table = run.table("front_latency")
    tokens = run.length(_LATENCY_TOKENS)
    with run.fleet.engine() as engine, run.fleet.ours(_front(engine.url)) as ours:
        sides = (_direct(run, engine.url, tokens), _Target(ours.url, _CHAT, _chat(tokens)))
        first, whole = _interleaved(sides, run.rounds)
    table.times("time to first token", first, "engine alone")
    table.figure("added to the first token", "ms", _added(first) * 1000)
    table.times(f"a stream of {tokens} tokens at full speed", whole, "engine alone")
    table.figure("added per token at full speed", "us", _added(whole) / tokens * 1e6)
    return table.rows


def front_load(run: BenchRun) -> list[FigureRow]:
    """Many streams at once: tokens per second, and CPU time per token against the bare parser."""
    table = run.table("front_load")
    port = free_port()
    crowds = [_PacedCrowd(streams, pace, int(pace * _CROWD_SECONDS)) for streams, pace in _CROWDS]
    crowds.append(_PacedCrowd(_FULL_SPEED_STREAMS, 0.0, 2000))
    with (
        _parser_step(run.fleet.model_dir) as step,
        run.fleet.ours(_front(f"http://127.0.0.1:{port}")) as ours,
    ):
        step.begin(_STEP_S, 0.0)
        table.figure("the parser step in a loop, nothing beside it", "us", step.end() * 1e6)
        for crowd in crowds:
            with run.fleet.engine(crowd.pace, port):
                _load(table, ours, crowd._replace(tokens=run.length(crowd.tokens)), step)
    return table.rows


class _Target(NamedTuple):
    """Where streams are asked for, and with which body."""

    url: str
    path: str
    body: bytes


class _PacedCrowd(NamedTuple):
    """Streams at once, and how fast the engine answers them."""

    streams: int
    pace: float
    """Tokens per second of each stream; 0 for as many as can be."""
    tokens: int
    """Of each stream."""

    @property
    def named(self) -> str:
        """How its rows begin."""
        speed = f"of {self.pace:g} tokens/s" if self.pace else "at full speed"
        return f"{self.streams} streams {speed}"


class _Usage(NamedTuple):
    """CPU seconds of a service's processes."""

    gateway: float
    shards: float

    @classmethod
    def of(cls, server: Server) -> "_Usage":
        session = server.process.pid
        gateway, shards = (
            sum(cpu_seconds(entry.pid) for entry in titled(session, title))
            for title in ("derender: gateway", "derender: shard")
        )
        return cls(gateway, shards)


def _load(table: Table, server: Server, crowd: _PacedCrowd, step: "_Step") -> None:
    streams, pace, tokens = crowd
    target = _Target(server.url, _CHAT, _chat(tokens))
    _crowd(target, min(streams, 8))
    # The step beside the load finds the caches as the shard finds them.
    step.begin(tokens / pace if pace else _STEP_S, min(streams * pace, _MOST_STEPS_PER_S))
    before = _Usage.of(server)
    result = _crowd(target, streams)
    after = _Usage.of(server)
    bare_us = step.end() * 1e6
    made = streams * tokens
    named = crowd.named
    table.figure(named, "tokens/s", made / result.elapsed_s)
    table.figure(f"{named}: gap between tokens, p99", "ms", result.gap_p99_s * 1000)
    gateway = (after.gateway - before.gateway) / made * 1e6
    shards = (after.shards - before.shards) / made * 1e6
    table.figure(f"{named}: CPU per token, gateway", "us", gateway)
    table.figure(f"{named}: CPU per token, shard", "us", shards)
    table.compared(
        f"{named}: CPU per token, added by all but the parser step",
        "us",
        bare_us,
        gateway + shards - bare_us,
        "parser step",
        _AT_MOST_ADDED,
    )


def _front(engine_url: str) -> tuple[str, ...]:
    return (*PARSERS, "--engine-url", engine_url)


def _chat(tokens: int) -> bytes:
    return _encode(CHAT_REQUEST | {"max_tokens": tokens, "ignore_eos": True})


def _direct(run: BenchRun, url: str, tokens: int) -> _Target:
    sampling = {"max_tokens": tokens, "ignore_eos": True}
    ids = run.workload.prompt(PROMPT_TOKENS)
    body = {"token_ids": ids, "sampling_params": sampling, "stream": True}
    return _Target(url, _GENERATE, _encode(body))


def _encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


def _interleaved(
    sides: tuple[_Target, _Target], rounds: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Times to the first event and to the end, of each side, in bursts in turn."""
    first: list[list[float]] = [[], []]
    whole: list[list[float]] = [[], []]
    for _ in range(0, rounds, _BURST):
        for number, side in enumerate(sides):
            result = _crowd(side, 1, repeat=_BURST + _WARM_UP)
            first[number] += result.firsts_s[_WARM_UP:]
            whole[number] += result.wholes_s[_WARM_UP:]
    return first, whole


def _added(samples: list[list[float]]) -> float:
    base, ours = samples
    return median(ours) - median(base)


def _crowd(target: _Target, streams: int, repeat: int = 1) -> StreamsResult:
    command = [sys.executable, "-m", "loadtest.bench.stream_crowd", target.url, target.path]
    command += ["--streams", str(streams), "--repeat", str(repeat)]
    done = subprocess.run(command, input=target.body, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=StreamsResult)


class _Step:
    """A process that measures the bare parser step when asked."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._read()

    def begin(self, seconds: float, rate: float) -> None:
        """Measure for so long, so many tokens a second."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds} {rate}\n")
        self._process.stdin.flush()

    def end(self) -> float:
        """CPU seconds per token."""
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def _parser_step(model_dir: Path) -> Iterator[_Step]:
    command = [sys.executable, "-m", "loadtest.bench.parser_step", str(model_dir)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield _Step(process)
    finally:
        process.kill()
        process.communicate()
