"""What a gateway process is told."""

from typing import Annotated

import msgspec

from core.protocol.options import ModelOptions
from core.protocol.settings import Group, Setting
from gateway.engines.settings import EngineSettings
from shards.messages.logs import LogSettings
from shards.messages.orders import TableLimits


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whose requests are served, and within what bounds."""

    api_keys: Annotated[
        tuple[str, ...],
        Setting(
            Group.SERVER,
            "keys callers must send one of as Authorization: Bearer KEY, else 401; better set in"
            " the environment; /health, /ping, /version, /metrics, /docs and /openapi.json stay"
            " open",
            flag="api-key",
        ),
    ] = ()
    """Empty lets every caller in."""
    max_body_bytes: Annotated[
        int,
        Setting(
            Group.SERVER,
            "longest request body read; longer ones get 413",
            shown_default="128M",
            least=1,
        ),
    ] = 128 * 2**20
    request_timeout_s: Annotated[
        float,
        Setting(
            Group.SERVER,
            "longest time for one request, its body's arrival included; then 504; at the front"
            " door, for each step but the engine's",
        ),
    ] = 120.0
    shutdown_timeout_s: Annotated[
        float,
        Setting(Group.SERVER, "how long open requests may go on once the service is told to end"),
    ] = 2.7
    write_timeout_s: Annotated[
        float, Setting(Group.SERVER, "longest time a caller may leave events of a stream unread")
    ] = 120.0


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway process needs beside the shards."""

    url: str
    """Where it listens, for the log."""
    model: ModelOptions
    http: HttpSettings = HttpSettings()
    engines: EngineSettings | None = None
    """The engines behind the front door; None serves no front door."""
    table: TableLimits = TableLimits()
    """Bounds of a shard's live streams, which the front door's streams keep too."""
    logs: LogSettings = LogSettings()

    @property
    def streams_per_shard(self) -> int:
        """Streams of the front door one shard may hold; more are refused."""
        return self.table.streams or TableLimits().streams
