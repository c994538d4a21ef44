"""The one door to vLLM, transformers and tokenizers.

`loading` brings a model folder into memory, `tokens` wraps its vocabulary, `requests` reads
callers' requests, `parsing` drives vLLM's reasoning and tool-call parsers, `rendering` its
renderer, which encodes as `encoding` says. Written against vLLM 0.33; an upgrade changes this
package and its tests.
"""

from core.vllm_adapter import lexers
from core.vllm_adapter import platform as cpu
from core.vllm_adapter.loading import Model, StartupError, load_model
from core.vllm_adapter.parsing import ChatContext, ParsedMessage, ParserStream
from core.vllm_adapter.rendering import Renderer, load_renderer
from core.vllm_adapter.tokens import Tokens

__all__ = [
    "ChatContext",
    "Model",
    "ParsedMessage",
    "ParserStream",
    "Renderer",
    "StartupError",
    "Tokens",
    "cpu",
    "lexers",
    "load_model",
    "load_renderer",
]
