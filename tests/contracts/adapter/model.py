"""The demo model as contract tests load it: once."""

import json
from functools import cache
from typing import Any

from core.protocol.calls import RenderTarget
from core.protocol.options import ModelOptions
from core.vllm_adapter.encoding import agrees
from core.vllm_adapter.loading import Model, load_model
from core.vllm_adapter.rendering import Renderer, load_renderer
from tests.serving import DEMO_MODEL

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
BODIES: dict[RenderTarget, dict[str, Any]] = {
    RenderTarget.CHAT: CHAT,
    RenderTarget.COMPLETION: {"prompt": "Hi"},
    RenderTarget.RESPONSES: {"input": "Hi"},
    RenderTarget.MESSAGES: {"model": "demo", "max_tokens": 1, **CHAT},
    RenderTarget.TOKENIZE: {"prompt": "Hi"},
    RenderTarget.DETOKENIZE: {"tokens": [0]},
}
"""One body of each kind that a renderer answers."""

_OPTIONS = ModelOptions(
    model=str(DEMO_MODEL),
    served_model_names=("demo",),
    tool_call_parser="hermes",
    reasoning_parser="qwen3",
    enable_auto_tool_choice=True,
)


@cache
def model() -> Model:
    """The model, with hermes and qwen3."""
    return load_model(_OPTIONS, lambda _: None)


@cache
def renderer() -> Renderer:
    """Its renderer, which has answered each kind once and encodes by `fastokens`."""
    made = load_renderer(_OPTIONS, model(), agrees)
    made.start()
    for target, body in BODIES.items():
        made.answer(target, body, "")
    return made


def answer(target: RenderTarget, request_id: str = "") -> Any:
    """The decoded answer to the body of a kind."""
    return json.loads(renderer().answer(target, BODIES[target], request_id))
