"""Builds what a shard answers with. Importing this module imports vLLM."""

import time
from collections.abc import Callable, Generator

from core.derenderer import Derenderer
from core.limits import Limits
from core.options import ModelOptions
from core.vllm_adapter import StartupError, load_model
from core.wire import Call
from shards.counters import TableCounters
from shards.entry import TableLimits
from shards.streams import StreamTable

Progress = Callable[[str], None]


class ShardModel:
    """A derenderer with its table of live streams."""

    def __init__(self, derenderer: Derenderer) -> None:
        """Begin without a table: every call replays."""
        self._derenderer = derenderer
        self._table = StreamTable(TableLimits(streams=0), time.monotonic)

    @property
    def names(self) -> tuple[str, ...]:
        """Served names, the first one reported."""
        return self._derenderer.names

    @property
    def limits(self) -> Limits:
        """Bounds every call must keep."""
        return self._derenderer.limits

    def begin(self, call: Call) -> bytes | Generator[bool, None, bytes]:
        """The JSON of the response to a call, or the steps that lead to it."""
        return self._derenderer.begin(call)

    def warm_up(self) -> None:
        """Answer a few calls of its own."""
        self._derenderer.warm_up()

    def keep_streams(self, limits: TableLimits, *, successor: bool) -> None:
        """Keep live streams between calls from here on."""
        self._table = StreamTable(limits, time.monotonic, successor=successor)
        self._derenderer.streams = self._table

    def expire_streams(self) -> None:
        """Let go of streams that were idle too long."""
        self._table.expire()

    def counters(self) -> TableCounters:
        """What happened to live streams so far."""
        return self._table.counters()


def build(options: ModelOptions, progress: Progress) -> ShardModel | str:
    """Load the model's text side and warm its parsers.

    Returns:
        The model, or one line that says why it cannot serve.
    """
    try:
        model = ShardModel(Derenderer(load_model(options, progress)))
    except StartupError as error:
        return str(error)
    progress("warming parsers")
    model.warm_up()
    return model
