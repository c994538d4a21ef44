"""One gateway worker's connection to one shard: calls out, replies in, and mending it.

A shard notes which call it works on, in memory that outlives it, so when it ends, that call is
blamed; the oldest unanswered one where it left no word. A call blamed twice is given up, every
other one is sent again to the successor. Memory: the messages of the calls in flight.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any, cast

import msgspec

from core.protocol.backoff import Backoff
from core.protocol.calls import (
    AdvanceStream,
    Call,
    Cancel,
    CloseStream,
    OpenStream,
    Stats,
    Work,
    call_encoder,
)
from core.protocol.errors import DerenderError, FaultCode, ShardLostTwice, ShardUnavailable
from shards.messages.channel import FrameReader, connect, header
from shards.messages.last_call import last_call
from shards.messages.replies import Ready, ready_decoder, reply_decoder
from shards.pool.digests import HeldContexts

_logger = logging.getLogger(__name__)

_FIRST_RETRY_S = 0.01
_LONGEST_RETRY_S = 0.25
_BLAMES_TO_GIVE_UP = 2
_COPIED_BYTES = 16 * 1024


class _Pending:
    """A call on its way, kept whole to be sent again, and who waits for it."""

    __slots__ = ("blames", "call", "future", "size")

    def __init__(self, call: Work | Stats, size: int, future: "asyncio.Future[bytes]") -> None:
        self.call = call
        self.size = size
        self.future = future
        self.blames = 0


class _FrameProtocol(asyncio.Protocol):
    """Turns the bytes of one connection into the shard's greeting and its replies."""

    def __init__(self, max_bytes: int, on_reply: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self._reader = FrameReader(max_bytes)
        self._on_reply = on_reply
        self.transport: asyncio.Transport | None = None
        self.greeting: asyncio.Future[Ready] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                if self.greeting.done():
                    self._on_reply(message)
                else:
                    self.greeting.set_result(ready_decoder.decode(message))
        except (ValueError, msgspec.DecodeError) as error:
            _logger.error("a shard sent what is no reply: %s", error)
            if self.transport is not None:
                self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class ShardConnection:
    """Keeps one shard connected and its calls answered.

    Attributes:
        shard: Index of the shard.
        name: How messages and logs call it.
        pending: Calls without an answer, oldest first.
        pending_bytes: Size of those.
        ready: What the shard said of itself; None before its first connection.
        generations: Shard processes met so far.
        resent: Calls sent again to a successor.
    """

    def __init__(
        self, shard: int, address: str, authkey: bytes, max_reply_bytes: int, kind: str
    ) -> None:
        """Describe the shard; `run` connects."""
        self.shard = shard
        self.name = f"{kind} {shard}"
        self.pending: dict[int, _Pending] = {}
        self.pending_bytes = 0
        self.ready: Ready | None = None
        self.generations = 0
        self.resent = 0
        self._lost_at: float | None = None
        self._address = address
        self._authkey = authkey
        self._max_reply_bytes = max_reply_bytes
        self._transport: asyncio.Transport | None = None
        self._held = HeldContexts()
        self._session_blames: dict[str, int] = {}

    @property
    def connected(self) -> bool:
        """Whether calls reach the shard at once."""
        return self._open_transport is not None

    @property
    def _open_transport(self) -> asyncio.Transport | None:
        """The connection; a lost one is closed a moment before `run` learns of it."""
        transport = self._transport
        return None if transport is None or transport.is_closing() else transport

    @property
    def away_s(self) -> float:
        """Seconds since the shard was lost; 0 while it is connected or was never met."""
        return time.monotonic() - self._lost_at if self._lost_at else 0.0

    def submit(self, call: Work | Stats, size: int) -> "asyncio.Future[bytes]":
        """Send a call of `size` bytes, or keep it for the successor of a shard that just ended."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.pending[call.call_id] = _Pending(call, size, future)
        self.pending_bytes += size
        self._send(call)
        return future

    def cancel(self, call_id: int) -> None:
        """Nobody waits for a call any more: have the shard stop."""
        pending = self._take(call_id)
        if pending is not None:
            pending.future.cancel()
            self._send(Cancel(call_id=call_id))

    def close_session(self, session: str) -> None:
        """Have the shard forget a stream of the front door."""
        self._session_blames.pop(session, None)
        self._send(CloseStream(call_id=0, session=session))

    def _send(self, call: Call) -> None:
        if (transport := self._open_transport) is not None:
            _write(transport, call_encoder.encode(self._held.lighten(call)))

    async def run(self, recovery_timeout_s: float) -> None:
        """Connect, serve, and connect again, until cancelled."""
        while True:
            protocol = await self._connect(recovery_timeout_s)
            await protocol.lost
            self._transport = None
            self._lost_at = time.monotonic()
            _logger.warning("lost %s with %d calls in flight", self.name, len(self.pending))
            self._blame(self.ready.pid if self.ready else 0)

    def close(self) -> None:
        """Drop the connection; calls in flight are refused."""
        if self._transport is not None:
            self._transport.abort()
        self.refuse_pending("the server is shutting down")

    def refuse_pending(self, reason: str) -> None:
        """Have every call in flight raise ShardUnavailable."""
        for call_id in list(self.pending):
            pending = self._take(call_id)
            if pending is not None:
                _fail(pending, ShardUnavailable(reason))

    async def _connect(self, recovery_timeout_s: float) -> _FrameProtocol:
        """Try until the shard answers; calls that waited too long are refused meanwhile."""
        backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        while True:
            try:
                return await self._try_connect()
            except (OSError, EOFError, AuthenticationError) as error:
                _logger.debug("%s does not answer yet: %r", self.name, error)
            if self.away_s > recovery_timeout_s:
                self.refuse_pending(f"{self.name} ended and its successor does not answer")
            await asyncio.sleep(backoff.next_s())

    async def _try_connect(self) -> _FrameProtocol:
        if not Path(self._address).exists():
            raise FileNotFoundError(self._address)
        peer = await asyncio.to_thread(connect, self._address, self._authkey)
        _, protocol = await asyncio.get_running_loop().create_unix_connection(
            lambda: _FrameProtocol(self._max_reply_bytes, self._on_reply), sock=peer
        )
        first: set[asyncio.Future[Any]] = {protocol.greeting, protocol.lost}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not protocol.greeting.done() or protocol.transport is None:
            raise EOFError("the shard left before it greeted")
        self._attach(protocol.transport, protocol.greeting.result())
        return protocol

    def _attach(self, transport: asyncio.Transport, ready: Ready) -> None:
        if self.ready is None or self.ready.pid != ready.pid:
            self.generations += 1
        self.ready, self._transport, self._lost_at = ready, transport, None
        self._held.clear()
        self.resent += len(self.pending)
        for pending in self.pending.values():
            self._send(pending.call)

    def _on_reply(self, message: bytes) -> None:
        reply = reply_decoder.decode(message)
        if reply.fault is not None and reply.fault.code is FaultCode.CONTEXT_MISSING:
            self._send_whole(reply.call_id)
            return
        pending = self._take(reply.call_id)
        if pending is None or pending.future.done():
            return
        if reply.fault is None:
            if isinstance(pending.call, AdvanceStream):
                # The shard outlived what the stream was blamed for.
                self._session_blames.pop(pending.call.session, None)
            pending.future.set_result(reply.body)
        else:
            pending.future.set_exception(reply.fault.error())

    def _send_whole(self, call_id: int) -> None:
        """Send a call again with the contexts the shard turned out to lack."""
        pending = self.pending.get(call_id)
        if pending is not None:
            self._held.forget(pending.call)
            self._send(pending.call)

    def _take(self, call_id: int) -> _Pending | None:
        pending = self.pending.pop(call_id, None)
        if pending is not None:
            self.pending_bytes -= pending.size
        return pending

    def _blame(self, pid: int) -> None:
        """Hold a shard's end against the call it worked on; the oldest where it left no word."""
        call_id = last_call(self._address, pid)
        if call_id not in self.pending:
            call_id = next(iter(self.pending), None)
        if call_id is None:
            return
        blamed = self.pending[call_id]
        if self._count_blame(blamed) >= _BLAMES_TO_GIVE_UP:
            self._take(call_id)
            _fail(blamed, ShardLostTwice("two shards ended while they worked on this request"))

    def _count_blame(self, blamed: _Pending) -> int:
        """Blames of a call; the calls of a stream are opened anew, so theirs are added up."""
        if not isinstance(blamed.call, OpenStream | AdvanceStream):
            blamed.blames += 1
            return blamed.blames
        session = blamed.call.session
        self._session_blames[session] = self._session_blames.get(session, 0) + 1
        return self._session_blames[session]


def _write(transport: asyncio.Transport, message: bytes) -> None:
    """Send a frame; a large one without copying it behind its header."""
    if len(message) > _COPIED_BYTES:
        transport.writelines((header(message), message))
    else:
        transport.write(header(message) + message)


def _fail(pending: _Pending, error: DerenderError) -> None:
    if not pending.future.done():
        pending.future.set_exception(error)
