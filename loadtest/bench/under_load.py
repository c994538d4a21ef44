"""Groups that look at ours under load: many streams at once, and a replay beside live streams."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Self

import msgspec

from loadtest.bench.crowd import CrowdResult
from loadtest.bench.keepalive import KeepAlive, PostError, TimedAnswer
from loadtest.bench.render_speed import RENDER_PATH, Prompts
from loadtest.bench.run import PROMPT_TOKENS, BenchRun
from loadtest.bench.stream import Stream
from loadtest.bench.workload import CHAT_PATH, Context, sampled_body
from loadtest.report.row import FigureRow
from loadtest.report.samples import percentile

_CROWDS = (32, 128)
_CROWD_CHUNKS = 12_800
"""Chunks of one crowd, all streams together."""
_REPLAYED_TOKENS = 100_000
_LIVE_TOKENS = 256
_LONGEST_REPLAY_S = 240.0


def concurrent(run: BenchRun) -> list[FigureRow]:
    """Parsed streams at once, from a client process of their own."""
    table = run.table("concurrent")
    url = run.pair().ours.url
    for streams in _CROWDS:
        for flags in ((), ("--checkpoints",)):
            result = _crowd(run, url, streams, flags)
            named = f"{streams} streams, {'checkpoints' if flags else 'echo'}"
            table.figure(f"{named}, throughput", "chunks/s", result.chunks_per_s)
            table.figure(f"{named}, chunk p50", "ms", result.p50_s * 1000)
            table.figure(f"{named}, chunk p99", "ms", result.p99_s * 1000)
    return table.rows


def _crowd(run: BenchRun, url: str, streams: int, flags: tuple[str, ...]) -> CrowdResult:
    tokens = max(8, run.length(_CROWD_CHUNKS) // streams)
    command = [sys.executable, "-m", "loadtest.bench.crowd", url]
    command += ["--model-dir", str(run.fleet.model_dir), "--streams", str(streams)]
    command += ["--tokens", str(tokens), *flags]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=CrowdResult)


def isolation(run: BenchRun) -> list[FigureRow]:
    """Live chunks on a shard, alone and while a long stream is replayed beside them."""
    table = run.table("isolation")
    tokens = run.length(_REPLAYED_TOKENS)
    with run.fleet.ours(shards=1) as server, KeepAlive(server.url) as connection:
        live = _LiveChunks(run, connection)
        live.times(2.0)
        idle = live.times(1.0 if run.quick else 5.0)
        replay = _Replay(run, server.url, tokens)
        beside = live.times(_LONGEST_REPLAY_S, until=replay.done)
        replay.finish()
        idle += live.times(1.0 if run.quick else 5.0)
    named = f"while {tokens:,} tokens are replayed"
    table.times(f"live chunk p50 {named}", (idle, beside), "idle", statistic=_p50)
    table.times(f"live chunk p99 {named}", (idle, beside), "idle", 2.0, statistic=_p99)
    if replay.exchange is not None:
        table.figure(f"the replay of {tokens:,} tokens itself", "s", replay.exchange.seconds)
    return table.rows


def render_isolation(run: BenchRun) -> list[FigureRow]:
    """Live chunks, alone and while long chats are rendered one after another beside them."""
    table = run.table("render_isolation")
    tokens = run.length(_REPLAYED_TOKENS)
    seconds = 1.0 if run.quick else 8.0
    with run.fleet.ours(shards=1) as server, KeepAlive(server.url) as connection:
        live = _LiveChunks(run, connection)
        live.times(2.0)
        idle = live.times(seconds)
        with _Renders(server.url, tokens) as renders:
            beside = live.times(seconds)
        idle += live.times(seconds)
    named = f"while chats of {tokens:,} tokens are rendered"
    table.times(f"live chunk p50 {named}", (idle, beside), "idle", statistic=_p50)
    table.times(f"live chunk p99 {named}", (idle, beside), "idle", 2.0, statistic=_p99)
    table.figure("renders meanwhile", "renders/s", renders.done / seconds)
    return table.rows


class _Renders:
    """Renders one chat after another from a thread, for the block."""

    def __init__(self, url: str, tokens: int) -> None:
        self._url = url
        self._tokens = tokens
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.done = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        with KeepAlive(self._url) as server:
            body = Prompts(server).body(self._tokens)
            while not self._stop.is_set():
                server.post(RENDER_PATH, body)
                self.done += 1


def _p50(samples: Sequence[float]) -> float:
    return percentile(samples, 50)


def _p99(samples: Sequence[float]) -> float:
    return percentile(samples, 99)


class _LiveChunks:
    """Streams driven one after another, a chunk at a time."""

    def __init__(self, run: BenchRun, connection: KeepAlive) -> None:
        self._context = Context(run.workload.prompt(PROMPT_TOKENS))
        self._output = run.workload.output(_LIVE_TOKENS)
        self._connection = connection

    def times(self, seconds: float, until: threading.Event | None = None) -> list[float]:
        """Times of chunks for so long, or until an event."""
        deadline = time.monotonic() + seconds
        times: list[float] = []
        live = Stream(self._context, self._output)
        while time.monotonic() < deadline and not (until is not None and until.is_set()):
            if live.position == len(self._output):
                live = Stream(self._context, self._output)
            times.append(live.step(self._connection).seconds)
        return times


class _Replay:
    """One call with a long history that the shard has not seen, made in a thread."""

    def __init__(self, run: BenchRun, url: str, tokens: int) -> None:
        context = Context(run.workload.prompt(PROMPT_TOKENS))
        self._body = sampled_body(context, run.workload.output(tokens), tokens)
        self._connection = KeepAlive(url)
        self.done = threading.Event()
        self.exchange: TimedAnswer | None = None
        self._thread = threading.Thread(target=self._post)
        self._thread.start()

    def finish(self) -> None:
        """Go away where the answer is still out, which ends the replay."""
        if not self.done.is_set():
            self._connection.abort()
        self._thread.join()
        self._connection.close()

    def _post(self) -> None:
        try:
            self.exchange = self._connection.post(CHAT_PATH, self._body)
        except (PostError, OSError):
            # Without an exchange there is no row for the replay.
            self.exchange = None
        finally:
            self.done.set()
