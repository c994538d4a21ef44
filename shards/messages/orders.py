"""What the supervisor tells its processes when it starts them."""

from enum import StrEnum

import msgspec

from core.protocol.options import ModelOptions
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

    streams: int = 4096
    """Live streams; 0 keeps none, so that every call replays."""
    tokens: int = 8_000_000
    """Prompt and output tokens of all live streams."""
    ttl_s: float = 300.0
    """How long a stream may go without a call."""


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
