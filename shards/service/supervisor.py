"""The parent of a service: starts the processes, replaces what dies, ends everything in order.

A shard that fails before the service has started once stops the service; one that dies later is
replaced from the warmed parent, with a growing delay while it keeps dying. The gateway is replaced
the same way. Signal handlers only record; the loop in `_watch` decides.
"""

import logging
import os
import secrets
import shutil
import socket
import tempfile
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import Annotated, cast

import msgspec
from setproctitle import setproctitle

from core.protocol.options import ModelOptions
from core.protocol.settings import Group, Setting
from shards.messages.logs import LogSettings, configure
from shards.messages.orders import (
    WARM_VARIABLE,
    GatewayOrder,
    PoolSettings,
    Role,
    ShardSpec,
    TableLimits,
    WarmOrder,
)
from shards.service.processes import Gateway, RestartDelay, Shard, WarmParent
from shards.service.shutdown import end
from shards.service.signals import END_SIGNALS, SignalRecord

_logger = logging.getLogger(__name__)


class CannotStart(Exception):
    """The service does not come up; the message is one line that says why."""


def _default_shards() -> int:
    """One core for the gateway, the rest for shards."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


class ShardCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many shards of each role run."""

    shards: Annotated[
        int,
        Setting(
            Group.PROCESSES, "processes that derender", shown_default="cores - 1", least=1, most=512
        ),
    ] = msgspec.field(default_factory=_default_shards)
    render_shards: Annotated[
        int,
        Setting(
            Group.PROCESSES,
            "processes that render and tokenize; 0 serves neither, and the front door needs one",
            least=0,
            most=512,
        ),
    ] = 1


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What to run."""

    options: ModelOptions
    counts: ShardCounts
    max_frame_bytes: int
    logs: LogSettings
    table: TableLimits
    gateway_command: tuple[str, ...]
    gateway_settings: bytes
    """JSON of the gateway's own settings, passed on unread."""
    drain_s: float = 3.5
    """How long the gateway may take to end its requests."""
    preload: tuple[str, ...] = ()
    """Modules the main module needs: each fork imports the main module again."""


class _Slot:
    """The place of one shard: who holds it, or when it is filled next."""

    def __init__(self, spec: ShardSpec) -> None:
        self.spec = spec
        self.shard: Shard | None = None
        self.due_at: float | None = 0.0
        self.delay = RestartDelay()


class Supervisor:
    """Runs one service until a signal ends it."""

    def __init__(self, service: Service, listener: socket.socket, signals: SignalRecord) -> None:
        """Prepare; `run` starts the processes."""
        self._service = service
        self._listener = listener
        self._signals = signals
        self._directory = Path(tempfile.mkdtemp(prefix="derender-"))
        self._authkey = secrets.token_bytes(32)
        specs = [self._spec(Role.STREAM, index) for index in range(service.counts.shards)]
        specs += [self._spec(Role.RENDER, index) for index in range(service.counts.render_shards)]
        self._slots = {spec.name: _Slot(spec) for spec in specs}
        self._warm_parent = WarmParent(service.preload)
        self._gateway: Gateway | None = None
        self._gateway_due_at: float | None = 0.0
        self._gateway_delay = RestartDelay()
        self._started = False

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM.

        Raises:
            CannotStart: A process failed before the service had started.
        """
        setproctitle("derender: supervisor")
        configure("supervisor", self._service.logs)
        try:
            self._prepare_environment()
            self._warm_parent.start()
            self._watch()
        finally:
            self._listener.close()
            self._end()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self) -> None:
        drain_s = self._service.drain_s
        end(self._gateway, self._shards(), self._warm_parent, self._signals, drain_s)

    # Start

    def _spec(self, role: Role, index: int) -> ShardSpec:
        name = f"{role.name.lower()}-{index}.sock"
        return ShardSpec(
            shard=index,
            role=role,
            address=str(self._directory / name),
            authkey=self._authkey,
            max_frame_bytes=self._service.max_frame_bytes,
            logs=self._service.logs,
            table=self._service.table,
        )

    def _prepare_environment(self) -> None:
        """Set what the children's libraries read; the warmed parent must not start threads."""
        order = WarmOrder(
            options=self._service.options,
            logs=self._service.logs,
            supervisor_pid=os.getpid(),
            render=self._service.counts.render_shards > 0,
        )
        os.environ[WARM_VARIABLE] = msgspec.json.encode(order).decode()
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.environ["VLLM_NO_USAGE_STATS"] = "1"
        os.environ["DO_NOT_TRACK"] = "1"
        # A shard renders on its one thread, which no timeout can interrupt.
        os.environ["VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT"] = "0"
        os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
        os.environ.setdefault("TORCH_LOGS", "-all")
        if Path(self._service.options.model).is_dir():
            os.environ["HF_HUB_OFFLINE"] = "1"
        _make_importable()

    def _start_gateway(self) -> None:
        self._gateway_due_at = None
        self._gateway_delay.started()
        order = GatewayOrder(
            listen_fd=self._listener.fileno(),
            supervisor_pid=os.getpid(),
            directory=str(self._directory),
            pool=self._pool(Role.STREAM),
            render_pool=self._pool(Role.RENDER) if self._service.counts.render_shards else None,
            settings=msgspec.Raw(self._service.gateway_settings),
        )
        command = self._service.gateway_command
        self._gateway = Gateway(command, msgspec.json.encode(order), self._listener)

    def _pool(self, role: Role) -> PoolSettings:
        specs = [slot.spec for slot in self._slots.values()]
        addresses = tuple(spec.address for spec in specs if spec.role is role)
        return PoolSettings(addresses=addresses, authkey=self._authkey, name=role.value)

    # Watch

    def _watch(self) -> None:
        while True:
            self._start_what_is_due()
            death = self._warm_parent.death
            sources = [self._signals, self._warm_parent, *self._shards()]
            sources += [] if death is None else [death]
            for source in wait(cast(list[int], sources), self._time_to_next_start()):
                if isinstance(source, Shard):
                    self._hear(source)
                elif cast(object, source) is self._warm_parent:
                    self._take_fork()
                elif source == death:
                    self._warm_parent.mend()
            if END_SIGNALS.intersection(self._signals.take()):
                return
            self._check_gateway()

    def _shards(self) -> list[Shard]:
        return [slot.shard for slot in self._slots.values() if slot.shard]

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        if self._gateway_due_at is not None and self._gateway_due_at <= now:
            self._start_gateway()
        for slot in self._slots.values():
            if slot.due_at is not None and slot.due_at <= now:
                slot.due_at = None
                slot.delay.started()
                spec = msgspec.structs.replace(slot.spec, successor=self._started)
                self._warm_parent.request(spec)

    def _time_to_next_start(self) -> float | None:
        dues = [self._gateway_due_at, *(slot.due_at for slot in self._slots.values())]
        times = [due for due in dues if due is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _take_fork(self) -> None:
        spec, result = self._warm_parent.take()
        slot = self._slots[spec.name]
        if isinstance(result, Shard):
            slot.shard = result
            return
        reason = f"the warmed parent ended while {spec.name} was to be forked"
        if not self._started:
            raise CannotStart(reason)
        _logger.error("%s (%r); it is started anew", reason, result)
        slot.due_at = time.monotonic() + slot.delay.next_delay_s()

    def _hear(self, shard: Shard) -> None:
        slot = self._slots[shard.spec.name]
        if not shard.hear():
            self._replace(slot, shard)
        elif shard.ready and shard.ready.error:
            if not self._started:
                raise CannotStart(shard.ready.error)
            _logger.error("%s cannot serve: %s", shard.spec.name, shard.ready.error)
        elif shard.ready:
            self._welcome(shard, warm=shard.ready.warm)

    def _welcome(self, shard: Shard, *, warm: bool) -> None:
        milliseconds = (time.monotonic() - shard.forked_at) * 1000
        name = shard.spec.name
        _logger.info("%s serves (pid %d, %.0f ms after fork)", name, shard.pid, milliseconds)
        if not warm:
            _logger.warning("%s was not forked warm: it holds its own copy of vLLM", name)
        if not self._started and all(s.shard and s.shard.ready for s in self._slots.values()):
            self._started = True

    def _replace(self, slot: _Slot, shard: Shard) -> None:
        slot.shard = None
        name, code = shard.spec.name, shard.exit_code()
        if not self._started:
            raise CannotStart(f"{name} ended with {code} before it was ready")
        delay = slot.delay.next_delay_s()
        slot.due_at = time.monotonic() + delay
        _logger.error(
            "%s (pid %d) ended with %s; its successor starts in %.2f s",
            name,
            shard.pid,
            code,
            delay,
        )

    def _check_gateway(self) -> None:
        gateway = self._gateway
        if gateway is None or (code := gateway.exit_code()) is None:
            return
        self._gateway = None
        if not self._started:
            raise CannotStart(f"the gateway ended with {code} before the service had started")
        delay = self._gateway_delay.next_delay_s()
        self._gateway_due_at = time.monotonic() + delay
        _logger.error(
            "the gateway (pid %d) ended with %s; its successor starts in %.2f s",
            gateway.pid,
            code,
            delay,
        )


def _make_importable() -> None:
    """Let children import this project from where it lies, not from the working folder."""
    root = Path(__file__).resolve().parents[2]
    os.environ["PYTHONSAFEPATH"] = "1"
    if root.name not in ("site-packages", "dist-packages"):
        paths = [str(root), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
