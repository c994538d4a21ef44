"""Builds what a shard answers with. Importing this module imports vLLM."""

import time
from collections.abc import Callable, Generator
from contextlib import nullcontext

import msgspec

from core.answerer import Derenderer
from core.protocol.limits import Limits
from core.protocol.options import ModelOptions
from core.protocol.wire import RENDER_KINDS, Call
from core.render import render, warm_up
from core.vllm_adapter.loading import Model, StartupError, load_model
from core.vllm_adapter.rendering import Renderer, load_renderer
from shards.messages.counters import TableCounters
from shards.shard import cpu_limit
from shards.shard.encoding_check import agrees_in_a_fork
from shards.shard.entry import TableLimits
from shards.shard.stream_table import StreamTable

Progress = Callable[[str], None]


class ShardModel:
    """A derenderer with its table of live streams, and a renderer where one was asked for."""

    def __init__(self, derenderer: Derenderer, renderer: Renderer | None = None) -> None:
        """Begin without a table: every call replays."""
        self._derenderer = derenderer
        self._renderer = renderer
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
        if call.kind in RENDER_KINDS and self._renderer is not None:
            return render(self._renderer, call)
        return self._derenderer.begin(call)

    def warm_up(self) -> None:
        """Answer a few calls of its own."""
        self._derenderer.warm_up()

    def start_rendering(self) -> None:
        """Prepare to render, in a process that is not forked any more."""
        if self._renderer is not None:
            takes = self._renderer.takes_templates
            self._renderer.start(cpu_limit.take_signal() if takes else nullcontext)
            warm_up(self._renderer)

    def keep_streams(self, limits: TableLimits, *, successor: bool) -> None:
        """Keep live streams between calls from here on."""
        self._table = StreamTable(limits, time.monotonic, successor=successor)
        self._derenderer.streams = self._table

    def expire_streams(self) -> None:
        """Let go of streams that were idle too long."""
        self._table.expire()

    def close_session(self, session: str) -> None:
        """Nobody waits for a stream of the front door any more."""
        self._derenderer.front.close(session)

    def counters(self) -> TableCounters:
        """What happened to live streams so far."""
        return msgspec.structs.replace(
            self._table.counters(), sessions=len(self._derenderer.front.serving)
        )


def build(options: ModelOptions, progress: Progress, *, render: bool) -> ShardModel | str:
    """Load the model's text side and warm its parsers.

    Args:
        options: What to serve, and how.
        progress: Told what happens next.
        render: Load vLLM's renderer too.

    Returns:
        The model, or one line that says why it cannot serve.
    """
    try:
        model = load_model(options, progress)
        renderer = _renderer(options, model, progress) if render else None
    except StartupError as error:
        return str(error)
    progress("warming parsers")
    shard_model = ShardModel(Derenderer(model), renderer)
    shard_model.warm_up()
    return shard_model


def _renderer(options: ModelOptions, model: Model, progress: Progress) -> Renderer:
    progress("preparing the renderer")
    renderer = load_renderer(options, model, agrees_in_a_fork)
    warm_up(renderer)
    renderer.close_loop()
    return renderer
