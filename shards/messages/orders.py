"""What the supervisor tells its processes when it starts them."""

from enum import StrEnum
from typing import Annotated

import msgspec

from core.protocol.options import ModelOptions
from core.protocol.settings import Group, Setting
from shards.messages.logs import LogSettings

WARM_VARIABLE = "_DERENDER_WARM"
"""Environment variable that carries a `WarmOrder` to the warmed parent."""


class WarmOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the warmed parent loads."""

    options: ModelOptions
    logs: LogSettings
    supervisor_pid: int
    render: bool = False
    """Load vLLM's renderer too."""


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the shards are and how much work may wait for them."""

    addresses: tuple[str, ...]
    """Socket path of each shard, by index."""
    authkey: bytes
    name: str = "shard"
    """What one of them is called in messages."""
    max_calls_in_flight: int = 256
    """Calls one shard may have without an answer; more are refused."""
    max_bytes_in_flight: int = 512 * 1024 * 1024
    """Bytes of calls one shard may have without an answer; more are refused."""
    max_reply_bytes: int = 4 * 1024 * 1024 * 1024
    recovery_timeout_s: float = 40.0
    """How long calls wait for the successor of a shard that ended."""


class GatewayOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The first line on a gateway's standard input."""

    listen_fd: int
    """Inherited listening socket."""
    supervisor_pid: int
    directory: str
    """Private folder of the shards' sockets."""
    pool: PoolSettings
    render_pool: PoolSettings | None = None
    """The bulk shards; None where none are run."""
    settings: msgspec.Raw
    """The gateway's own settings, as its command line made them."""


class TableLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one shard's table."""

    streams: Annotated[
        int,
        Setting(
            Group.PROCESSES,
            "live streams a shard keeps between calls; 0 replays on every call; as many of the"
            " front door may be open in a shard (4096 where it is 0), more are refused",
            flag="live-streams",
            least=0,
        ),
    ] = 4096
    tokens: Annotated[
        int,
        Setting(
            Group.PROCESSES,
            "prompt and output tokens of a shard's live streams",
            flag="live-tokens",
            shown_default="8m",
            least=1,
        ),
    ] = 8_000_000
    ttl_s: Annotated[
        float,
        Setting(Group.PROCESSES, "how long a live stream is kept without a call", flag="live-ttl"),
    ] = 300.0


class Role(StrEnum):
    """What a shard is for."""

    STREAM = "shard"
    RENDER = "render shard"
    """Bulk work: render and tokenize, so that no long prompt delays a chunk."""


class ShardSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What one shard needs to know."""

    shard: int
    """Index among the shards of its role."""
    address: str
    """Socket path it listens on."""
    authkey: bytes
    max_frame_bytes: int
    """Longest call it reads."""
    logs: LogSettings
    table: TableLimits = TableLimits()
    """Bounds of its live streams."""
    successor: bool = False
    """It replaces a shard that ended."""
    role: Role = Role.STREAM

    @property
    def name(self) -> str:
        """How logs and process lists show it."""
        return f"{self.role.value} {self.shard}"
