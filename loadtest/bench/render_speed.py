"""Groups that look at render: chat renders against vLLM's Python render server and its Rust one."""

import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from loadtest.bench.keepalive import KeepAlive
from loadtest.bench.run import BenchRun
from loadtest.model.folder import CORPUS
from loadtest.report.row import FigureRow
from loadtest.report.samples import interleaved
from loadtest.servers.fleet import PARSERS

RENDER_PATH = "/v1/chat/completions/render"
_TOKENS = {100: None, 1_000: None, 10_000: 5.0, 100_000: 10.0}
"""Prompt lengths, and how many times faster than the reference a render must be."""
_AT_MOST_OF_RUST = 2.0
_HELD_AGAINST_RUST = 1_000
"""Prompts from this length on are held against the Rust server."""
_ROUNDS = {100_000: 16, 10_000: 48}
_SHARDS = (1, 2)
_CONNECTIONS = 4
_THROUGHPUT_TOKENS = (100, 1_000, 10_000)
_THROUGHPUT_S = 3.0


class Prompts:
    """Bodies of chat requests of a wanted length in tokens, each different."""

    def __init__(self, server: KeepAlive) -> None:
        """Learn from a server how many characters a token has."""
        self._words = CORPUS.read_text(encoding="utf-8").split(" ")
        self._random = random.Random(1)
        self._characters_per_token = 3.0
        sample = server.post(RENDER_PATH, self.body(2_000)).answer
        self._characters_per_token *= 2_000 / len(json.loads(sample)["token_ids"])

    def body(self, tokens: int) -> bytes:
        """A request of about this many prompt tokens."""
        wanted, words, size = int(tokens * self._characters_per_token), [], 0
        while size < wanted:
            word = self._random.choice(self._words)
            words.append(word)
            size += len(word) + 1
        messages = [{"role": "user", "content": " ".join(words)[:wanted]}]
        return json.dumps({"messages": messages, "max_tokens": 64}).encode()


def render_latency(run: BenchRun) -> list[FigureRow]:
    """One chat render at a time, by prompt length."""
    table = run.table("render_latency")
    pair = run.pair()
    prompts = Prompts(pair.reference)
    with run.fleet.rust() as server, KeepAlive(server.url) as rust:
        for tokens, wanted in _TOKENS.items():
            length = run.length(tokens)
            rounds = min(run.rounds, _ROUNDS.get(tokens, run.rounds))
            sides = [_Render(server, prompts, length) for server in (*pair, rust)]
            theirs, ours, rusts = interleaved(sides, rounds)
            named = f"chat of {length:,} tokens"
            table.faster(named, (theirs, ours), wanted)
            most = _AT_MOST_OF_RUST if tokens >= _HELD_AGAINST_RUST else None
            table.times(f"{named}, against vLLM's Rust server", (rusts, ours), "vllm-rs", most)
    return table.rows


def render_throughput(run: BenchRun) -> list[FigureRow]:
    """Chat renders per second on four connections, by number of render shards."""
    table = run.table("render_throughput")
    with ExitStack() as stack:
        urls = {"reference": stack.enter_context(run.fleet.reference()).url}
        urls["vllm-rs"] = stack.enter_context(run.fleet.rust()).url
        for shards in _SHARDS:
            flags = (*PARSERS, "--render-shards", str(shards))
            named = f"{shards} render shard{'s'[: shards - 1]}"
            urls[named] = stack.enter_context(run.fleet.ours(flags)).url
        with KeepAlive(urls["reference"]) as server:
            prompts = Prompts(server)
        for tokens in _THROUGHPUT_TOKENS:
            length = run.length(tokens)
            bodies = [prompts.body(length) for _ in range(128)]
            for named, url in urls.items():
                rate = _throughput(url, bodies)
                table.figure(f"chats of {length:,} tokens: {named}", "renders/s", rate)
    return table.rows


class _Render:
    """Renders a prompt nobody has rendered, and says how long that took."""

    def __init__(self, server: KeepAlive, prompts: Prompts, tokens: int) -> None:
        self._server = server
        self._prompts = prompts
        self._tokens = tokens

    def __call__(self) -> float:
        return self._server.post(RENDER_PATH, self._prompts.body(self._tokens)).seconds


def _throughput(url: str, bodies: Sequence[bytes]) -> float:
    deadline = time.perf_counter() + _THROUGHPUT_S

    def work(first: int) -> int:
        done = 0
        with KeepAlive(url) as server:
            while time.perf_counter() < deadline:
                server.post(RENDER_PATH, bodies[(first + done) % len(bodies)])
                done += 1
        return done

    with ThreadPoolExecutor(_CONNECTIONS) as callers:
        starts = range(0, len(bodies), len(bodies) // _CONNECTIONS)
        return sum(callers.map(work, starts)) / _THROUGHPUT_S
