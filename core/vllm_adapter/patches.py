"""What is changed in vLLM (0.33): one function a change, `install` for all of them.

Modules of vLLM ask for the platform while they are imported, so `install` comes before the first
import of one, which every other module of this package is. What is changed is therefore imported
inside the functions here.

A further patch is one function with its reason, a line in `install`, a line in `reaches` and a
test in `tests/contracts/adapter` that holds it.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any

import vllm.platforms
from pydantic import field_validator
from vllm.platforms.cpu import CpuPlatform

_KEPT_LEXERS = 32


def install() -> None:
    """Change vLLM as this package needs it; again has no effect.

    Raises:
        RuntimeError: It is too late, see `install_cpu_platform`.
    """
    install_cpu_platform()
    keep_lexers()
    check_rendered_ids_at_once()


def install_cpu_platform() -> None:
    """Make vLLM run without a GPU.

    vLLM's PyPI wheel finds no device on such a machine and then refuses every config. Its CPU
    platform, which is part of that wheel, needs none.

    Raises:
        RuntimeError: Modules of vLLM were imported before and hold another platform.
    """
    found = vllm.platforms._current_platform
    if isinstance(found, CpuPlatform):
        return
    if found is not None:
        raise RuntimeError(
            f"vLLM already runs on {type(found).__name__}: core.vllm_adapter.patches.install() "
            "comes before anything that imports vLLM"
        )
    vllm.platforms._current_platform = CpuPlatform()


@cache
def keep_lexers() -> None:
    """Keep what vLLM's parser engine builds anew for every parser.

    A parser's lexer of special tokens depends on its config and the tokenizer alone, and is only
    read. Building it is a third of a parser's cost, and render makes two parsers per request.
    """
    from vllm.parser.engine import streaming_parser_engine

    streaming_parser_engine._build_drop_info = _kept(streaming_parser_engine._build_drop_info)


@cache
def check_rendered_ids_at_once() -> None:
    """Check the prompt that vLLM has rendered without a walk in Python over its tokens.

    vLLM checks the sign of each token ID, one by one: a fifth of a long render. The least of them
    tells as much.
    """
    from vllm.entrypoints.scale_out.render import serving

    class RenderedRequest(serving.GenerateRequest):  # type: ignore[misc]
        """The request that render answers with."""

        @field_validator("token_ids")
        @classmethod
        def validate_token_ids(cls, ids: list[int]) -> Any:
            """Refuse negative IDs, in the place of vLLM's own check of the same name."""
            if ids and min(ids) < 0:
                raise ValueError("token_ids must be at least 0")
            return ids

    serving.GenerateRequest = RenderedRequest


def _kept(build: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A function of a config and a tokenizer that keeps its latest results."""
    kept: OrderedDict[tuple[int, int], tuple[Any, Any, Any]] = OrderedDict()

    def kept_or_built(config: Any, tokenizer: Any) -> Any:
        key = id(config), id(tokenizer)
        entry = kept.get(key)
        if entry is None:
            # The entry holds both, so their identities are not given to others meanwhile.
            entry = kept[key] = config, tokenizer, build(config, tokenizer)
            if len(kept) > _KEPT_LEXERS:
                kept.popitem(last=False)
        return entry[2]

    return kept_or_built
