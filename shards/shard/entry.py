"""The first function of a shard process, importable by the supervisor without loading vLLM."""

import importlib
import os
from multiprocessing.connection import Connection

from shards.messages.orders import ShardSpec
from shards.messages.replies import Ready, reply_encoder
from shards.shard import warm

_SERVER = "shards.shard.server"
"""Named, not imported: it loads vLLM, which only the warmed parent and its children may hold."""


def run_shard(spec: ShardSpec, supervisor: Connection) -> None:
    """Serve until the supervisor closes its end of the pipe, or say why that cannot be."""
    outcome = warm.outcome
    failure = "the warmed parent did not load the model" if outcome is None else outcome.failure
    if failure is None:
        importlib.import_module(_SERVER).serve(spec, supervisor)
        return
    refusal = Ready(shard=spec.shard, pid=os.getpid(), error=failure)
    supervisor.send_bytes(reply_encoder.encode(refusal))
