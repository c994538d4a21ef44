"""Measure chat renders: ours against vLLM's Python render server and its Rust one.

Run with `python -m loadtest.bench_render [--model-dir DIR] [--rounds N] [--render-shards N]
[--tokens N ...]`. All three servers are started here, on the same model and with the same flags;
each round sends the same prompt to each of them in turn, and no prompt is sent twice. Times are
medians over HTTP on one kept connection; the client shares the cores with the servers.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from loadtest import reference
from loadtest.make_demo_model import MODEL_DIR
from loadtest.processes import free_port, launch, stop, wait_healthy

CORPUS = Path(__file__).with_name("demo_corpus.txt")
PATH = "/v1/chat/completions/render"
TOKENS = (100, 1_000, 10_000, 100_000)
CONNECTIONS = 4
THROUGHPUT_TOKENS = 1_000
THROUGHPUT_S = 3.0
START_TIMEOUT_S = 300.0
MAX_MODEL_LEN = 200_000
PARSERS = ("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
AUTO = "--enable-auto-tool-choice"
WANTED = {10_000: 5.0, 100_000: 10.0}
"""How many times faster than the reference a render must be, by prompt tokens."""


class Side(NamedTuple):
    """One server."""

    name: str
    port: int

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection to keep."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)


class Prompts:
    """Chat requests of a wanted length in tokens, each different."""

    def __init__(self, side: Side) -> None:
        """Learn from a server how many characters a token has."""
        self._words = CORPUS.read_text(encoding="utf-8").split(" ")
        self._random = random.Random(1)
        self._characters_per_token = 3.0
        sample = _post(side.connect(), self.body(2_000))
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything and print a table."""
    args = _parse_args(argv)
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    with ExitStack() as stack:
        logs = Path(tempfile.mkdtemp(prefix="derender-bench-"))
        print(f"bench: the servers log to {logs}", file=sys.stderr)
        sides = [
            stack.enter_context(_python(args.model_dir, logs)),
            stack.enter_context(_rust(args.model_dir, logs)),
            stack.enter_context(_ours(args.model_dir, logs, args.render_shards)),
        ]
        prompts = Prompts(sides[0])
        for tokens in args.tokens:
            _print_latency(tokens, _latencies(sides, prompts, tokens, args.rounds))
        _print_throughput(sides, [prompts.body(THROUGHPUT_TOKENS) for _ in range(256)])
    return 0


def _latencies(
    sides: Sequence[Side], prompts: Prompts, tokens: int, rounds: int
) -> list[list[float]]:
    """Milliseconds of each side, sampled in turn."""
    connections = [side.connect() for side in sides]
    samples: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 2):
        body = prompts.body(tokens)
        for connection, kept in zip(connections, samples, strict=True):
            begun = time.perf_counter()
            _post(connection, body)
            if number >= 2:
                kept.append((time.perf_counter() - begun) * 1000)
    for connection in connections:
        connection.close()
    return samples


def _print_latency(tokens: int, samples: list[list[float]]) -> None:
    theirs, rust, ours = map(statistics.median, samples)
    wanted = WANTED.get(tokens)
    verdict = "" if wanted is None else f" (wanted {wanted:g}x)"
    print(
        f"{tokens:>7} tokens: reference {theirs:7.2f} ms, rust {rust:7.2f} ms, ours {ours:7.2f} ms;"
        f" {theirs / ours:5.1f}x faster than the reference{verdict},"
        f" {ours / rust:5.2f}x the time of rust",
        flush=True,
    )


def _print_throughput(sides: Sequence[Side], bodies: Sequence[bytes]) -> None:
    for side in sides:
        print(
            f"{side.name:>10}: {_throughput(side, bodies):7.0f} renders/s of {THROUGHPUT_TOKENS}"
            f" tokens on {CONNECTIONS} connections",
            flush=True,
        )


def _throughput(side: Side, bodies: Sequence[bytes]) -> float:
    deadline = time.perf_counter() + THROUGHPUT_S

    def work(first: int) -> int:
        connection, done = side.connect(), 0
        while time.perf_counter() < deadline:
            _post(connection, bodies[(first + done) % len(bodies)])
            done += 1
        connection.close()
        return done

    with ThreadPoolExecutor(CONNECTIONS) as callers:
        starts = range(0, len(bodies), len(bodies) // CONNECTIONS)
        return sum(callers.map(work, starts)) / THROUGHPUT_S


def _post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    connection.request("POST", PATH, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise SystemExit(f"bench: {response.status}: {answer[:300].decode(errors='replace')}")
    return answer


@contextmanager
def _python(model: Path, logs: Path) -> Iterator[Side]:
    flags = ("--max-model-len", str(MAX_MODEL_LEN), *PARSERS, AUTO)
    with reference.start(model, flags, log_path=logs / "reference.log") as (_, url):
        yield Side("reference", int(url.rpartition(":")[2]))


@contextmanager
def _rust(model: Path, logs: Path) -> Iterator[Side]:
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        raise SystemExit("bench: vllm is not installed")
    binary = Path(spec.origin).with_name("vllm-rs")
    with _launched("rust", [str(binary), "render", str(model)], logs) as side:
        yield side


@contextmanager
def _ours(model: Path, logs: Path, render_shards: int) -> Iterator[Side]:
    command = [sys.executable, "-m", "gateway.cli", "serve", str(model), AUTO, "--shards", "1"]
    command += ["--render-shards", str(render_shards)]
    with _launched("ours", command, logs) as side:
        yield side


@contextmanager
def _launched(name: str, command: list[str], logs: Path) -> Iterator[Side]:
    port = free_port()
    command += [*PARSERS, "--port", str(port), "--max-model-len", str(MAX_MODEL_LEN)]
    with (logs / f"{name}.log").open("ab") as log:
        process = launch(command, output=log, extra_env=reference.QUIET)
    try:
        wait_healthy(name, process, f"http://127.0.0.1:{port}", START_TIMEOUT_S)
        yield Side(name, port)
    finally:
        stop(process)


def _parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench_render", description=__doc__)
    parser.add_argument("--model-dir", type=Path, default=MODEL_DIR, help="default: the demo model")
    parser.add_argument("--rounds", type=int, default=30, help="samples per side; default 30")
    parser.add_argument("--render-shards", type=int, default=1, help="of ours; default 1")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, help="prompt lengths")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
