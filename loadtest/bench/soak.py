"""Many short streams through a small table: does a shard's memory stay flat, and is nothing left?

Run with `python -m loadtest.bench.soak [--streams 20000] [--table 64]`. It starts a service of its
own, prints the private memory of each shard at intervals, and ends with code 1 if the second half
of the run grew memory beyond the bound, or left a call in flight or more live streams than the
table holds.

Half of the streams use checkpoints; one in ten is left unfinished, one in ten repeats a call, and
some unfinished ones go on after they must have been evicted.
"""

import argparse
import random
import re
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from loadtest.bench.keepalive import KeepAlive
from loadtest.bench.stream import Stream
from loadtest.bench.workload import Context
from loadtest.model.folder import MODEL_DIR
from loadtest.servers.fleet import PARSERS, Fleet
from loadtest.servers.procfs import private_bytes, titled

PROMPTS = 50
"""Different prompts; streams share them, as real ones share few."""
PROMPT_TOKENS = 40
STREAM_TOKENS = 12
LATER = 10
"""Unfinished streams that begin before an older one goes on."""
_MB = 1e6
_SAMPLE = re.compile(r"^(\w+)\{shard=\"(\d+)\"\} (\S+)$", re.MULTILINE)
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class SoakPlan(NamedTuple):
    """What a soak does and allows."""

    streams: int = 20_000
    table: int = 64
    """Live streams a shard may hold."""
    samples: int = 20
    """How often memory is read."""
    growth_mb: float = 4.0
    """Private memory each shard may gain in the second half."""


class SoakSample(NamedTuple):
    """The service after some streams."""

    streams: int
    private_mb: tuple[float, ...]
    """Of each shard."""
    live: tuple[int, ...]
    """Live streams of each shard."""


class SoakResult(NamedTuple):
    """What a soak saw."""

    samples: list[SoakSample]
    in_flight: int
    """Calls without an answer at the end."""

    def complaints(self, plan: SoakPlan) -> list[str]:
        """What was out of bounds, one line each."""
        found = []
        half = self.samples[len(self.samples) // 2]
        for shard, (mid, end) in enumerate(
            zip(half.private_mb, self.samples[-1].private_mb, strict=True)
        ):
            if end - mid > plan.growth_mb:
                found.append(
                    f"shard {shard} grew by {end - mid:.1f} MB in the second half,"
                    f" more than {plan.growth_mb:g} MB"
                )
        most = max(max(sample.live) for sample in self.samples)
        if most > plan.table:
            found.append(f"a shard held {most} live streams, more than {plan.table}")
        if self.in_flight:
            found.append(f"{self.in_flight} calls are still in flight")
        return found


def soak(
    url: str,
    shards: Callable[[], Sequence[int]],
    plan: SoakPlan,
    tell: Callable[[SoakSample], None],
) -> SoakResult:
    """Drive the streams and watch the shards.

    Args:
        url: The service.
        shards: Process ID of each shard.
        plan: What to do.
        tell: Told each sample.
    """
    rng = random.Random(20)
    contexts = [
        Context([rng.randrange(1000) for _ in range(PROMPT_TOKENS)]) for _ in range(PROMPTS)
    ]
    samples = []
    left: list[Stream] = []
    every = max(1, plan.streams // plan.samples)
    with KeepAlive(url) as connection:
        for number in range(1, plan.streams + 1):
            _one(connection, rng, contexts, left)
            if number % every == 0:
                samples.append(_sample(url, shards(), number))
                tell(samples[-1])
    return SoakResult(samples, sum(_gauge(url, "derender_shard_calls_in_flight")))


def _one(
    connection: KeepAlive, rng: random.Random, contexts: list[Context], left: list[Stream]
) -> None:
    """One stream, to its end or not."""
    output = [rng.randrange(1690) for _ in range(STREAM_TOKENS)]
    checkpoints = rng.random() < 0.5
    stream = Stream(rng.choice(contexts), output, checkpoints=checkpoints)
    way = rng.random()
    if way < 0.1:
        stream.drive(connection, STREAM_TOKENS // 2)
        if not checkpoints:
            left.append(stream)
    elif way < 0.2:
        stream.drive(connection, STREAM_TOKENS // 2)
        connection.post(stream.path, stream.body())
        stream.drive(connection, STREAM_TOKENS)
    else:
        stream.drive(connection, STREAM_TOKENS)
    if len(left) > LATER:
        # Long gone from the table by now, so its state has to be replayed.
        left.pop(0).drive(connection, STREAM_TOKENS)


def _sample(url: str, pids: Sequence[int], streams: int) -> SoakSample:
    memory = tuple(private_bytes(pid) / _MB for pid in pids)
    return SoakSample(streams, memory, tuple(_gauge(url, "derender_live_streams")))


def _gauge(url: str, name: str) -> Iterator[int]:
    with _direct.open(f"{url}/metrics", timeout=30) as response:
        text = response.read().decode()
    for found, _, value in _SAMPLE.findall(text):
        if found == name:
            yield int(float(value))


def print_sample(sample: SoakSample) -> None:
    """One line of the memory curve."""
    memory = "  ".join(f"{mb:7.2f} MB" for mb in sample.private_mb)
    live = "  ".join(f"{count:4d}" for count in sample.live)
    print(f"{sample.streams:8d} streams   private {memory}   live {live}", flush=True)


def main() -> None:
    """Start a service, soak it, and say what was found."""
    parser = argparse.ArgumentParser(description="Soak a service's table of live streams.")
    defaults = SoakPlan()
    parser.add_argument("--streams", type=int, default=defaults.streams)
    parser.add_argument("--table", type=int, default=defaults.table)
    parser.add_argument("--samples", type=int, default=defaults.samples)
    parser.add_argument("--growth-mb", type=float, default=defaults.growth_mb)
    parser.add_argument("--shards", type=int, default=1)
    given = parser.parse_args()
    plan = SoakPlan(given.streams, given.table, given.samples, given.growth_mb)
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fleet = Fleet(MODEL_DIR, logs, max_model_len=8192, shards=given.shards)
        flags = (*PARSERS, "--live-streams", str(plan.table))
        server = stack.enter_context(fleet.ours(flags))

        def shards() -> list[int]:
            found = titled(server.process.pid, "derender: shard")
            return [entry.pid for entry in sorted(found, key=lambda entry: entry.title)]

        complaints = soak(server.url, shards, plan, print_sample).complaints(plan)
    for complaint in complaints:
        print(f"soak: {complaint}", file=sys.stderr)
    if complaints:
        sys.exit(1)
    print("soak: memory is flat and nothing is left over")


if __name__ == "__main__":
    main()
