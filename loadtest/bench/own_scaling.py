"""Groups that compare ours with itself: position, prompt, transport, replicas, a bare POST."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from loadtest.bench.keepalive import KeepAlive
from loadtest.bench.run import PROMPT_TOKENS, BenchRun
from loadtest.bench.stream import Stream
from loadtest.bench.workload import CHAT_PATH, Context, sampled_body
from loadtest.report.row import FigureRow
from loadtest.report.samples import interleaved, mean
from loadtest.report.table import Samples, Table

_TRANSPORTS = (("echo", False), ("checkpoints", True))
_LONG_PROMPT = 100_000
_REPLICA_COUNTS = (2, 4)
_SETTLED = 80
"""Tokens after which a stream is past its reasoning."""


def bare(run: BenchRun) -> list[FigureRow]:
    """A live chunk against a POST of a body of the same size that the service only reads."""
    table = run.table("bare")
    for position in (100, 1000):
        for name, checkpoints in _TRANSPORTS:
            live = _stream(run, PROMPT_TOKENS, run.length(position) + run.rounds, checkpoints)
            ours = run.pair().ours
            live.drive(ours, run.length(position))
            samples = interleaved([_bare_post(ours, live), _step(ours, live)], run.rounds - 2)
            named = f"chunk from token {run.length(position):,}, {name}"
            table.times(named, samples, "bare POST", 2.0)
    return table.rows


def growth(run: BenchRun) -> list[FigureRow]:
    """A chunk late in a stream against a chunk early in one."""
    table = run.table("growth")
    ours = run.pair().ours
    rounds = min(run.rounds, 64)
    for name, checkpoints in _TRANSPORTS:
        late, early = run.length(4000), run.length(100)
        streams = [_stream(run, PROMPT_TOKENS, at + rounds, checkpoints) for at in (early, late)]
        for live, at in zip(streams, (early, late), strict=True):
            live.drive(ours, max(0, at - rounds // 2))
        samples = interleaved([_step(ours, live) for live in streams], rounds - 2)
        named = f"chunk at token {late:,}, {name}"
        table.times(named, samples, f"at token {early:,}", 1.5)
    return table.rows


def prompt(run: BenchRun) -> list[FigureRow]:
    """A chunk with a long prompt against one with a short one, and against the reference."""
    table = run.table("prompt")
    pair = run.pair()
    rounds = min(run.rounds, 100)
    long = run.length(_LONG_PROMPT)
    for (name, checkpoints), wanted in zip(_TRANSPORTS, (5.0, 1.2), strict=True):
        streams = [
            _stream(run, size, _SETTLED + rounds + 2, checkpoints) for size in (PROMPT_TOKENS, long)
        ]
        for live in streams:
            live.drive(pair.ours, _SETTLED)
        samples = interleaved([_step(pair.ours, live) for live in streams], rounds)
        table.times(f"{long:,}-token prompt, {name}", samples, "64-token prompt", wanted)
    _prompt_against_reference(run, table, run.length(32_000))
    return table.rows


def _prompt_against_reference(run: BenchRun, table: Table, size: int) -> None:
    pair = run.pair()
    context = Context(run.workload.prompt(size))
    output = run.workload.output(128)
    live = Stream(context, output)
    live.drive(pair.ours, 56)
    body = sampled_body(context, output, 64)
    sides = [lambda: pair.reference.post(CHAT_PATH, body).seconds, _step(pair.ours, live)]
    table.faster(f"{size:,}-token prompt at token 64, echo", interleaved(sides, 16))


def checkpoint(run: BenchRun) -> list[FigureRow]:
    """A whole generation with checkpoints against one that echoes its state."""
    table = run.table("checkpoint")
    ours = run.pair().ours
    tokens = run.length(1024)
    echo, small = [_stream(run, PROMPT_TOKENS, tokens, asked) for _, asked in _TRANSPORTS]
    pairs = [(echo.step(ours), small.step(ours)) for _ in range(tokens)]
    echoed, checked = zip(*pairs, strict=True)
    times = [[exchange.seconds for exchange in side] for side in (echoed, checked)]
    table.times(f"chunk, mean over {tokens:,} tokens", times, "echo", statistic=mean)
    for way, size in (("sent", lambda e: e.sent), ("received", lambda e: len(e.answer))):
        echo_kb, small_kb = (sum(map(size, side)) / 1000 for side in (echoed, checked))
        table.compared(f"body bytes {way}, {tokens:,} tokens", "kB", echo_kb, small_kb, "echo")
    return table.rows


def replicas(run: BenchRun) -> list[FigureRow]:
    """One stream whose chunks go to several services in turn."""
    table = run.table("replicas")
    tokens = run.length(1024)
    with ExitStack() as stack:
        servers = stack.enter_context(run.fleet.replicas(max(_REPLICA_COUNTS), shards=1))
        connections = [stack.enter_context(KeepAlive(server.url)) for server in servers]
        for connection in connections:
            _stream(run, PROMPT_TOKENS, 16, False).drive(connection, 16)
        for count in _REPLICA_COUNTS:
            samples = _round_robin(run, connections, count, tokens)
            named = f"chunk over {count} services, echo, mean of {tokens:,}"
            table.times(named, samples, "one service", statistic=mean)
    return table.rows


def _round_robin(
    run: BenchRun, connections: Sequence[KeepAlive], count: int, tokens: int
) -> Samples:
    alone = _stream(run, PROMPT_TOKENS, tokens, False)
    spread = _stream(run, PROMPT_TOKENS, tokens, False)
    one, several = [], []
    for number in range(tokens):
        one.append(alone.step(connections[0]).seconds)
        several.append(spread.step(connections[number % count]).seconds)
    return one, several


def _stream(run: BenchRun, prompt_tokens: int, output_tokens: int, checkpoints: bool) -> Stream:
    context = Context(run.workload.prompt(prompt_tokens))
    return Stream(context, run.workload.output(output_tokens), checkpoints=checkpoints)


def _step(connection: KeepAlive, live: Stream) -> Callable[[], float]:
    return lambda: live.step(connection).seconds


def _bare_post(connection: KeepAlive, live: Stream) -> Callable[[], float]:
    return lambda: connection.post("/ping", live.body()).seconds
