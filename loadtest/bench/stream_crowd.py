"""Many streams at once against one server, from a process of their own.

Run with `python -m loadtest.bench.stream_crowd URL PATH --streams N [--repeat N]`, the body on
standard input; it prints one line of JSON. It drives an engine's `/inference/v1/generate` and the
front door's endpoints alike, since both answer by server-sent events.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
import uvloop

from loadtest.bench.keepalive import PostError, request_bytes
from loadtest.report.samples import percentile

_READ_BYTES = 1 << 16
_EVENT = b"data: "
_END = b"data: [DONE]\n\n"


class StreamsResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a crowd saw of its streams."""

    elapsed_s: float
    """From the first request to the end of the last stream."""
    events: int
    """Events of all streams, `[DONE]` left out."""
    firsts_s: list[float]
    """From each request to its first event."""
    wholes_s: list[float]
    """From each request to its last event."""
    gap_p50_s: float
    gap_p99_s: float
    """Between two reads that brought events."""


class _Stream:
    """One request and the times at which its events came."""

    def __init__(self, url: str, path: str, body: bytes) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._request = request_bytes(parts.netloc, path, body)
        self.begun = 0.0
        self.times: list[float] = []
        self.ended = 0.0
        self.events = 0

    async def run(self) -> None:
        """Send the request and read to the end.

        Raises:
            PostError: The answer is no whole event stream.
        """
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            self.begun = time.perf_counter()
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                raise PostError((head + await reader.read(300)).decode(errors="replace"))
            await self._read(reader)
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        tail = b""
        while _END not in tail:
            data = await reader.read(_READ_BYTES)
            if not data:
                raise PostError("the stream broke off")
            now = time.perf_counter()
            # An event's beginning may be cut by the end of a read.
            found = (tail[-len(_EVENT) + 1 :] + data).count(_EVENT)
            tail = (tail + data)[-len(_END) * 2 :]
            if found:
                self.events += found
                self.times.append(now)
        self.events -= 1
        self.ended = self.times[-1]

    def gaps(self) -> list[float]:
        """Seconds between reads that brought events."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


async def crowd(url: str, path: str, body: bytes, streams: int, repeat: int = 1) -> StreamsResult:
    """Run so many streams at once, and that again and again."""
    running: list[_Stream] = []
    for _ in range(repeat):
        several = [_Stream(url, path, body) for _ in range(streams)]
        async with asyncio.TaskGroup() as group:
            for stream in several:
                group.create_task(stream.run())
        running += several
    gaps = [gap for stream in running for gap in stream.gaps()] or [0.0]
    return StreamsResult(
        elapsed_s=max(s.ended for s in running) - min(s.begun for s in running),
        events=sum(stream.events for stream in running),
        firsts_s=[stream.times[0] - stream.begun for stream in running],
        wholes_s=[stream.ended - stream.begun for stream in running],
        gap_p50_s=percentile(gaps, 50),
        gap_p99_s=percentile(gaps, 99),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one crowd and print what it saw."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bench.stream_crowd", description=__doc__
    )
    parser.add_argument("url")
    parser.add_argument("path")
    parser.add_argument("--streams", type=int, default=1, help="at once; default 1")
    parser.add_argument("--repeat", type=int, default=1, help="one crowd after another; default 1")
    args = parser.parse_args(argv)
    body = sys.stdin.buffer.read()
    result = uvloop.run(crowd(args.url, args.path, body, args.streams, args.repeat))
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
