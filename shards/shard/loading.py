"""Builds what a shard answers with. Importing this module imports vLLM."""

from collections.abc import Callable

from core.answerer import Answerer
from core.protocol.options import ModelOptions
from core.render import warm_up
from core.vllm_adapter.loading import Model, StartupError, load_model
from core.vllm_adapter.rendering import Renderer, load_renderer
from shards.shard.encoding_check import agrees_in_a_fork

Progress = Callable[[str], None]


def build(options: ModelOptions, progress: Progress, *, render: bool) -> Answerer | str:
    """Load the model's text side and warm its parsers.

    Args:
        options: What to serve, and how.
        progress: Told what happens next.
        render: Load vLLM's renderer too.

    Returns:
        What answers, or one line that says why it cannot be had.
    """
    try:
        model = load_model(options, progress)
        renderer = _renderer(options, model, progress) if render else None
    except StartupError as error:
        return str(error)
    progress("warming parsers")
    answerer = Answerer(model, renderer=renderer)
    answerer.warm_up()
    return answerer


def _renderer(options: ModelOptions, model: Model, progress: Progress) -> Renderer:
    progress("preparing the renderer")
    renderer = load_renderer(options, model, agrees_in_a_fork)
    warm_up(renderer)
    renderer.close_loop()
    return renderer
