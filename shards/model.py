"""Builds what a shard answers with. Importing this module imports vLLM."""

import logging
from collections.abc import Callable

from core.derenderer import Derenderer
from core.options import ModelOptions
from core.vllm_adapter import StartupError, load_model

_logger = logging.getLogger(__name__)

Progress = Callable[[str], None]


def build(options: ModelOptions, progress: Progress) -> Derenderer | str:
    """Load the model's text side and warm its parsers.

    Returns:
        The derenderer, or one line that says why it cannot serve.
    """
    try:
        derenderer = Derenderer(load_model(options, progress))
    except StartupError as error:
        return str(error)
    progress("warming parsers")
    derenderer.warm_up()
    return derenderer
