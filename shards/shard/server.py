"""A shard: one thread that reads calls, has them worked on, and answers.

Peers are gateway workers. One that stalls in the middle of a frame is dropped after
`channel.PEER_TIMEOUT_S`; it connects again and repeats what was not answered.
"""

import faulthandler
import gc
import logging
import os
import selectors
import signal
import socket
import time
from importlib.metadata import version
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection

import msgspec
from setproctitle import setproctitle

from core.protocol.wire import Ready, Reply, call_decoder, reply_encoder
from shards.messages import channel
from shards.messages.channel import accept, listen
from shards.messages.last_call import CurrentCall
from shards.messages.logs import configure
from shards.shard import warm
from shards.shard.entry import Role, ShardSpec
from shards.shard.gateway_connection import Peer
from shards.shard.scheduler import SLICE_S, Work

_logger = logging.getLogger(__name__)

_EXPIRY_INTERVAL_S = 1.0
_GC_THRESHOLD = (10_000, 20, 20)
_BULK_NICENESS = 5


def serve(spec: ShardSpec, supervisor: Connection) -> None:
    """Report ready, then answer calls until the supervisor closes its end."""
    _settle(spec)
    derenderer, ready = _ready(spec)
    if derenderer is None:
        supervisor.send_bytes(reply_encoder.encode(ready))
        return
    with listen(spec.address) as listener:
        supervisor.send_bytes(reply_encoder.encode(ready))
        loop = _Loop(spec, supervisor, listener, derenderer, ready)
        try:
            loop.run()
        finally:
            loop.close()


def _settle(spec: ShardSpec) -> None:
    """Become a shard: title, log, and signals left to the supervisor."""
    setproctitle(f"derender: {spec.name}")
    gc.set_threshold(*_GC_THRESHOLD)
    configure(spec.name, spec.logs)
    if spec.role is Role.RENDER:
        # Where cores are short, a chunk goes before a render.
        os.nice(_BULK_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def _ready(spec: ShardSpec) -> tuple[warm.Answerer | None, Ready]:
    outcome = warm.outcome
    if outcome is None:
        return None, _cannot(spec, "the warmed parent did not load the model")
    if outcome.derenderer is None:
        return None, _cannot(spec, outcome.failure or "the model did not load")
    derenderer = outcome.derenderer
    derenderer.warm_up()
    if spec.role is Role.RENDER:
        derenderer.start_rendering()
    derenderer.keep_streams(spec.table, successor=spec.successor)
    return derenderer, Ready(
        shard=spec.shard,
        pid=os.getpid(),
        warm=outcome.pid != os.getpid(),
        vllm_version=version("vllm"),
        served_model_names=tuple(derenderer.names),
        max_model_len=derenderer.limits.max_model_len,
    )


def _cannot(spec: ShardSpec, line: str) -> Ready:
    return Ready(shard=spec.shard, pid=os.getpid(), error=line)


class _Loop:
    """Waits on the listener, the peers and the supervisor, and serves one message at a time."""

    def __init__(
        self,
        spec: ShardSpec,
        supervisor: Connection,
        listener: socket.socket,
        derenderer: warm.Answerer,
        ready: Ready,
    ) -> None:
        self._spec = spec
        self._supervisor = supervisor
        self._listener = listener
        self._derenderer = derenderer
        self._work = Work(derenderer, self._reply, CurrentCall(spec.address).note)
        self._expire_at = 0.0
        self._ready = reply_encoder.encode(ready)
        self._selector = selectors.DefaultSelector()
        self._peers: set[Peer] = set()
        self._answered: set[Peer] = set()

    def run(self) -> None:
        self._selector.register(self._supervisor, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while True:
            begun = any(peer.inbox for peer in self._peers)
            timeout_s = 0 if self._work.waiting or begun else _EXPIRY_INTERVAL_S
            for key, _ in self._selector.select(timeout_s):
                source = key.fileobj
                if source is self._supervisor:
                    return
                if source is self._listener:
                    self._welcome()
                elif isinstance(source, Peer):
                    self._read(source)
            # Each peer that has something gets a slice per round, and so does one begun call.
            for peer in tuple(self._peers):
                self._serve(peer)
            if self._work.waiting:
                self._work.run_slice()
                self._flush()
            self._expire()

    def close(self) -> None:
        """Drop every peer."""
        for peer in self._peers:
            peer.close()
        self._selector.close()

    def _welcome(self) -> None:
        try:
            connection = accept(self._listener, self._spec.authkey)
        except (OSError, EOFError, AuthenticationError) as error:
            _logger.warning("a peer did not get in: %s", error or type(error).__name__)
            return
        peer = Peer(connection, self._spec.max_frame_bytes)
        self._peers.add(peer)
        self._selector.register(peer, selectors.EVENT_READ)
        peer.answer(self._ready)
        self._answered.add(peer)
        self._flush()

    def _read(self, peer: Peer) -> None:
        try:
            if not peer.read():
                self._drop(peer)
        except (OSError, ValueError) as error:
            _logger.warning("dropping a peer: %s", error)
            self._drop(peer)

    def _serve(self, peer: Peer) -> None:
        """Take calls for a slice of time; their replies go out together."""
        if not peer.inbox:
            return
        deadline = time.perf_counter() + SLICE_S
        while peer.inbox:
            try:
                call = call_decoder.decode(peer.inbox.popleft())
            except msgspec.DecodeError as error:
                _logger.warning("dropping a peer: %s", error)
                self._drop(peer)
                return
            self._work.take(peer, call)
            if time.perf_counter() > deadline:
                break
        self._flush()

    def _reply(self, peer: Peer, reply: Reply) -> None:
        peer.answer(reply_encoder.encode(reply))
        self._answered.add(peer)

    def _flush(self) -> None:
        """Send what was answered."""
        answered, self._answered = self._answered, set()
        for peer in answered:
            try:
                peer.flush()
            except OSError as error:
                _logger.warning("dropping a peer that does not read: %s", error)
                self._drop(peer)

    def _expire(self) -> None:
        now = time.monotonic()
        if now < self._expire_at:
            return
        self._expire_at = now + _EXPIRY_INTERVAL_S
        self._derenderer.expire_streams()
        for peer in [peer for peer in self._peers if peer.stalled_s > channel.PEER_TIMEOUT_S]:
            _logger.warning("dropping a peer that stopped inside a message")
            self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        if peer not in self._peers:
            return
        self._peers.remove(peer)
        self._answered.discard(peer)
        self._selector.unregister(peer)
        self._work.forget(peer)
        peer.inbox.clear()
        peer.close()
