"""Keeps what vLLM's parser engine builds anew for every parser (vLLM 0.33).

A parser's lexer of special tokens depends on its config and the tokenizer alone, and is only read.
Building it is a third of a parser's cost, and render makes two parsers per request.
"""

from collections import OrderedDict
from typing import Any

from vllm.parser.engine import streaming_parser_engine

_KEPT = 32

_build = streaming_parser_engine._build_drop_info
_kept: OrderedDict[tuple[int, int], tuple[Any, Any, Any]] = OrderedDict()


def _kept_drop_info(config: Any, tokenizer: Any) -> Any:
    key = id(config), id(tokenizer)
    entry = _kept.get(key)
    if entry is None:
        # The entry holds both, so their identities are not given to others meanwhile.
        entry = _kept[key] = config, tokenizer, _build(config, tokenizer)
        if len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return entry[2]


streaming_parser_engine._build_drop_info = _kept_drop_info
