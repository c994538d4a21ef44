"""A shard: one thread that reads calls, has them worked on, and answers.

One gateway that stalls in the middle of a frame is dropped after
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
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection

import msgspec
from setproctitle import setproctitle

from core.answerer import Answerer
from core.protocol.calls import call_decoder
from shards.messages import channel
from shards.messages.channel import accept, listen
from shards.messages.last_call import CurrentCall
from shards.messages.logs import configure
from shards.messages.orders import Role, ShardSpec
from shards.messages.replies import Ready, Reply, reply_encoder
from shards.shard import cpu_limit, warm
from shards.shard.gateway_connection import GatewayConnection
from shards.shard.scheduler import SLICE_S, Answers, Scheduler
from shards.shard.stream_table import StreamTable

_logger = logging.getLogger(__name__)

_EXPIRY_INTERVAL_S = 1.0
_GC_THRESHOLD = (10_000, 20, 20)
_BULK_NICENESS = 5


def serve(spec: ShardSpec, supervisor: Connection) -> None:
    """Report ready, then answer calls until the supervisor closes its end."""
    _settle(spec)
    answerer = _warmed()
    if spec.role is Role.RENDER:
        answerer.start_rendering(cpu_limit.take_signal)
    answerer.streams = table = StreamTable(spec.table, time.monotonic, successor=spec.successor)
    ready = _ready(spec, answerer)
    with listen(spec.address) as listener:
        supervisor.send_bytes(reply_encoder.encode(ready))
        server = ShardServer(spec, supervisor, listener, answerer, table, ready)
        try:
            server.run()
        finally:
            server.close()


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


def _warmed() -> Answerer:
    """What the warmed parent left, ready to answer in this process."""
    outcome = warm.outcome
    assert outcome is not None
    assert isinstance(outcome.answerer, Answerer)
    outcome.answerer.warm_up()
    return outcome.answerer


def _ready(spec: ShardSpec, answerer: Answerer) -> Ready:
    return Ready(
        shard=spec.shard,
        pid=os.getpid(),
        warm=warm.outcome is not None and warm.outcome.pid != os.getpid(),
        max_model_len=answerer.limits.max_model_len,
    )


class ShardServer:
    """Waits on the listener, the gateways and the supervisor; serves one message at a time."""

    def __init__(
        self,
        spec: ShardSpec,
        supervisor: Connection,
        listener: socket.socket,
        answers: Answers,
        table: StreamTable,
        ready: Ready,
    ) -> None:
        """Prepare; `run` serves.

        Args:
            spec: Who this is.
            supervisor: Its closing ends the shard.
            listener: Where gateways connect.
            answers: Does the work.
            table: The live streams.
            ready: What a gateway is greeted with.
        """
        self._spec = spec
        self._supervisor = supervisor
        self._listener = listener
        self._table = table
        note = CurrentCall(spec.address).note
        self._scheduler = Scheduler(answers, self._reply, note, table.counters)
        self._expire_at = 0.0
        self._ready = reply_encoder.encode(ready)
        self._selector = selectors.DefaultSelector()
        self._gateways: set[GatewayConnection] = set()
        self._answered: set[GatewayConnection] = set()

    def run(self) -> None:
        """Serve until the supervisor closes its end."""
        self._selector.register(self._supervisor, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while True:
            begun = any(gateway.inbox for gateway in self._gateways)
            timeout_s = 0 if self._scheduler.waiting or begun else _EXPIRY_INTERVAL_S
            for key, _ in self._selector.select(timeout_s):
                source = key.fileobj
                if source is self._supervisor:
                    return
                if source is self._listener:
                    self._welcome()
                elif isinstance(source, GatewayConnection):
                    self._read(source)
            # Each gateway that has something gets a slice per round, and so does one begun call.
            for gateway in tuple(self._gateways):
                self._serve(gateway)
            if self._scheduler.waiting:
                self._scheduler.run_slice()
                self._flush()
            self._expire()

    def close(self) -> None:
        """Drop every gateway."""
        for gateway in self._gateways:
            gateway.close()
        self._selector.close()

    def _welcome(self) -> None:
        try:
            connection = accept(self._listener, self._spec.authkey)
        except (OSError, EOFError, AuthenticationError) as error:
            _logger.warning("a gateway did not get in: %s", error or type(error).__name__)
            return
        gateway = GatewayConnection(connection, self._spec.max_frame_bytes)
        self._gateways.add(gateway)
        self._selector.register(gateway, selectors.EVENT_READ)
        gateway.answer(self._ready)
        self._answered.add(gateway)
        self._flush()

    def _read(self, gateway: GatewayConnection) -> None:
        try:
            if not gateway.read():
                self._drop(gateway)
        except (OSError, ValueError) as error:
            _logger.warning("dropping a gateway: %s", error)
            self._drop(gateway)

    def _serve(self, gateway: GatewayConnection) -> None:
        """Take calls for a slice of time; their replies go out together."""
        if not gateway.inbox:
            return
        deadline = time.perf_counter() + SLICE_S
        while gateway.inbox:
            try:
                call = call_decoder.decode(gateway.inbox.popleft())
            except msgspec.DecodeError as error:
                _logger.warning("dropping a gateway: %s", error)
                self._drop(gateway)
                return
            self._scheduler.take(gateway, call)
            if time.perf_counter() > deadline:
                break
        self._flush()

    def _reply(self, gateway: GatewayConnection, reply: Reply) -> None:
        gateway.answer(reply_encoder.encode(reply))
        self._answered.add(gateway)

    def _flush(self) -> None:
        """Send what was answered."""
        answered, self._answered = self._answered, set()
        for gateway in answered:
            try:
                gateway.flush()
            except OSError as error:
                _logger.warning("dropping a gateway that does not read: %s", error)
                self._drop(gateway)

    def _expire(self) -> None:
        now = time.monotonic()
        if now < self._expire_at:
            return
        self._expire_at = now + _EXPIRY_INTERVAL_S
        self._table.expire()
        for gateway in [
            gateway for gateway in self._gateways if gateway.stalled_s > channel.PEER_TIMEOUT_S
        ]:
            _logger.warning("dropping a gateway that stopped inside a message")
            self._drop(gateway)

    def _drop(self, gateway: GatewayConnection) -> None:
        if gateway not in self._gateways:
            return
        self._gateways.remove(gateway)
        self._answered.discard(gateway)
        self._selector.unregister(gateway)
        self._scheduler.forget(gateway)
        gateway.inbox.clear()
        gateway.close()
