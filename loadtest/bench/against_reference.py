"""Groups that compare with the reference: one-shot answers, plain chunks, parsed streams."""

from collections.abc import Sequence

from loadtest.bench.keepalive import KeepAlive
from loadtest.bench.run import PROMPT_TOKENS, BenchRun, Pair
from loadtest.bench.stream import Stream
from loadtest.bench.workload import CHAT_PATH, COMPLETION_PATH, Context, one_shot_body, sampled_body
from loadtest.report.row import FigureRow
from loadtest.report.samples import interleaved, mean, median, percentile
from loadtest.report.table import Samples

ONE_SHOT = ((256, 0, 5.0), (4000, 0, 5.0), (16_000, 0, 5.0), (4000, 5, 10.0))
"""Tokens, top logprobs, and how much faster than the reference at least."""
STREAM_LENGTHS = (128, 512, 1024, 4096)
_WANTED_AT = {1024: 50.0, 4096: 200.0}
_MIDPOINTS = 8
_LAST_PERCENT = 0.99


def oneshot(run: BenchRun) -> list[FigureRow]:
    """One-shot chat answers with parsers."""
    table = run.table("oneshot")
    pair = run.pair()
    prompt = run.workload.prompt(PROMPT_TOKENS)
    for tokens, top, wanted in ONE_SHOT:
        size = run.length(tokens)
        body = one_shot_body(prompt, run.workload.finished(size), top)
        rounds = max(3, run.rounds * 1000 // (tokens * (10 if top else 1)) // 4)
        samples = _posted(pair, CHAT_PATH, body, min(run.rounds, rounds))
        named = f"{size:,} tokens" + (f", top-{top} logprobs" if top else "")
        table.faster(named, samples, at_least=wanted)
    return table.rows


def _posted(pair: Pair, path: str, body: bytes, rounds: int) -> list[list[float]]:
    sides = [lambda side=side: side.post(path, body).seconds for side in pair]
    return interleaved(sides, rounds)


def plain(run: BenchRun) -> list[FigureRow]:
    """Streamed chunks without parsers, one token each."""
    table = run.table("plain")
    pair = run.pair(parsers=False)
    output = run.workload.output(run.rounds + 8)
    for name, path in (("chat chunk", CHAT_PATH), ("completions chunk", COMPLETION_PATH)):
        context = Context(run.workload.prompt(PROMPT_TOKENS), path=path)
        streams = [(side, Stream(context, output)) for side in pair]
        sides = [lambda side=side, live=live: live.step(side).seconds for side, live in streams]
        table.faster(name, interleaved(sides, run.rounds, warm_up=4), at_least=3.0)
    return table.rows


def stream(run: BenchRun) -> list[FigureRow]:
    """Parsed streams, one token a chunk.

    Ours is driven through the whole stream. The reference replays, so a call with a state built
    here costs it what it would cost in a stream that was driven; its mean over a stream is that
    of midpoints, its p99 the cost where 99 % of the stream is done.
    """
    table = run.table("stream")
    lengths = [run.length(tokens) for tokens in STREAM_LENGTHS]
    comparison = _StreamComparison(run, lengths)
    for number, length in enumerate(lengths):
        wanted = _WANTED_AT.get(STREAM_LENGTHS[number])
        table.faster(f"chunk at token {length:,}", comparison.at(length), at_least=wanted)
        table.faster(f"{length:,} tokens, mean", comparison.over(length), statistic=mean)
        table.faster(f"{length:,} tokens, p99", comparison.p99(length))
    return table.rows


class _StreamComparison:
    """Drives ours through the longest stream, asking the reference at positions on the way."""

    def __init__(self, run: BenchRun, lengths: Sequence[int]) -> None:
        self._pair = run.pair()
        self._context = Context(run.workload.prompt(PROMPT_TOKENS))
        self._output = run.workload.output(max(lengths))
        self._samples = max(3, run.rounds // 40)
        self._theirs: dict[int, list[float]] = {}
        self._ours = self._drive(_positions(lengths))

    def at(self, position: int) -> Samples:
        """Samples at a position: the reference there, ours on the way to it."""
        return self._theirs[position], self._ours[max(0, position - 16) : position]

    def over(self, length: int) -> Samples:
        """The reference at the midpoints of a stream, ours at each of its chunks."""
        theirs = [median(self._theirs[position]) for position in _midpoints(length)]
        return theirs, self._ours[:length]

    def p99(self, length: int) -> Samples:
        """The reference where 99 % of a stream is done, the p99 of all chunks of ours."""
        theirs = self._theirs[int(length * _LAST_PERCENT)]
        return [median(theirs)], [percentile(self._ours[:length], 99)]

    def _drive(self, positions: set[int]) -> list[float]:
        live = Stream(self._context, self._output)
        _warm(self._pair, self._context, self._output)
        times = []
        while live.position < len(self._output):
            times.append(live.step(self._pair.ours).seconds)
            if live.position in positions:
                self._theirs[live.position] = self._ask(self._pair.reference, live.position)
        return times

    def _ask(self, reference: KeepAlive, position: int) -> list[float]:
        bodies = (sampled_body(self._context, self._output, position) for _ in range(self._samples))
        return [reference.post(CHAT_PATH, body).seconds for body in bodies]


def _warm(pair: Pair, context: Context, output: Sequence[int]) -> None:
    for side in pair:
        Stream(context, output).drive(side, 8)


def _midpoints(length: int) -> list[int]:
    return [length * (2 * number + 1) // (2 * _MIDPOINTS) for number in range(_MIDPOINTS)]


def _positions(lengths: Sequence[int]) -> set[int]:
    """Where the reference is asked: the end, 99 % and the midpoints of each stream."""
    ends = {position for length in lengths for position in (length, int(length * _LAST_PERCENT))}
    return ends | {position for length in lengths for position in _midpoints(length)}
