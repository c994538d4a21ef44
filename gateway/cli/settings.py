"""Everything `derender serve` can be told. A new flag is one more annotated field, here or below.

`gateway.cli.flags` makes flags, variables, help and documentation from the fields; fields without
`Setting` are not for operators. Within a group, flags are shown in the order of the fields.
"""

from typing import Annotated

import msgspec

from core.protocol.options import ModelOptions
from core.protocol.settings import Group, Setting
from gateway.engines.settings import EngineSettings
from gateway.services.settings import HttpSettings
from shards.messages.logs import LogSettings
from shards.messages.orders import TableLimits
from shards.service.supervisor import ShardCounts


class SettingsError(Exception):
    """A setting cannot be used; the message is one line that names it."""


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `derender serve` was told."""

    host: Annotated[str, Setting(Group.SERVER, "address to listen on")] = "127.0.0.1"
    port: Annotated[
        int, Setting(Group.SERVER, "port to listen on; 0 takes a free one", least=0, most=65535)
    ] = 8100
    counts: ShardCounts
    model: ModelOptions
    http: HttpSettings
    table: TableLimits
    allow_untested_vllm: Annotated[
        bool, Setting(Group.PROCESSES, "start with a vLLM version this release was not tested with")
    ] = False
    logs: LogSettings
    engines: EngineSettings | None = None
    """None where no engine is named."""
