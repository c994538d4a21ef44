"""Many parsed streams at once against one server, from a process of their own.

Run with `python -m loadtest.bench.crowd URL --model-dir DIR --streams N --tokens T
[--checkpoints]`; it prints one line of JSON.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop

from loadtest.bench.keepalive import check_status, content_length, request_bytes
from loadtest.bench.run import PROMPT_TOKENS
from loadtest.bench.stream import Stream
from loadtest.bench.workload import Context, Workload
from loadtest.report.samples import percentile


class CrowdResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a crowd saw."""

    chunks_per_s: float
    p50_s: float
    p99_s: float


class _Client:
    """One keep-alive connection that drives one stream."""

    def __init__(self, url: str, stream: Stream) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._netloc = parts.netloc
        self._stream = stream

    async def run(self, tokens: int, times: list[float]) -> None:
        """Drive the stream and add the time of each chunk."""
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=1 << 24)
        try:
            for _ in range(tokens):
                request = request_bytes(self._netloc, self._stream.path, self._stream.body())
                begun = time.perf_counter()
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                answer = await reader.readexactly(content_length(head))
                times.append(time.perf_counter() - begun)
                check_status(head, answer)
                self._stream.take(answer)
        finally:
            writer.close()


async def crowd(url: str, streams: Sequence[Stream], tokens: int) -> CrowdResult:
    """Drive all streams at once, each as fast as its answers come."""
    times: list[float] = []
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for stream in streams:
            group.create_task(_Client(url, stream).run(tokens, times))
    elapsed = time.perf_counter() - begun
    return CrowdResult(
        chunks_per_s=len(times) / elapsed, p50_s=percentile(times, 50), p99_s=percentile(times, 99)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one crowd and print what it saw."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.crowd", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--checkpoints", action="store_true")
    args = parser.parse_args(argv)
    workload = Workload(args.model_dir)
    context, output = Context(workload.prompt(PROMPT_TOKENS)), workload.output(args.tokens)
    streams = [Stream(context, output, checkpoints=args.checkpoints) for _ in range(args.streams)]
    result = uvloop.run(crowd(args.url, streams, args.tokens))
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
