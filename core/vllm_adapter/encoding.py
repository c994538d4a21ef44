"""Encoding for render: by `fastokens` where it gives what the model's own tokenizer gives.

vLLM switches a whole process to `fastokens` (`VLLM_USE_FASTOKENS`), decoding included. Here one
copy of a loaded tokenizer encodes with it, and everything that decodes keeps the plain one.
"""

import copy
import logging
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeAlias

from transformers import TokenizersBackend
from vllm.tokenizers.hf import ThreadSafeHFTokenizerMixin

_logger = logging.getLogger(__name__)

Check: TypeAlias = Callable[[Any, Any], bool]
"""Whether an encoder, the second, gives a tokenizer's IDs; `agrees` says it in this process."""

_SENTENCES = (
    "Hello, world! It's 12:30 on 2026-01-31; 1234567890 items cost $9.99 (net), I'd say.",
    "snake_case CamelCase kebab-case __init__ x+=1; if(a&&b||!c){return a<<2;} // done\r\n\r\nEOF",
    'def f(x):\n\treturn {"key": [1, 2.5e-3, None], "s": \'t\'}\n\n\n# end   \n',
    "a  b   c    d\t\te\n\n\nf \n g\r\nh\u00a0i\u3000j\u200bk\u2028l  ",
    " leading",
    "   ",
    "\n\n",
    "",
    "Zażółć gęślą jaźń; Ünïcödé; naïve café; cafe\u0301; A\u030angstro\u0308m; \u1e9b\u0323 ﬁ Ⅷ ½",
    "漢字とひらがな、カタカナ。한국어 조선글 中文繁體简体。العربية עברית हिन्दी ไทย ქართული",
    "😀👍🏽👩‍👩‍👧‍👦🇩🇪🏴‍☠️ ❤️ ∑∫√≠ ←→ ½ \ufeff\ufffd\u0000\u0007\x7f",
    "\U0001f9d1\u200d\U0001f680 \U0010fffd \ue000 \u0378",
)
"""What tokenizers may split differently: scripts, joiners, controls, runs of whitespace."""


def render_tokenizer(tokenizer: Any, check: Check | None) -> Any:
    """A view of a loaded tokenizer for vLLM's renderer; see `start_encoding`.

    Args:
        tokenizer: What `vllm.tokenizers` loads for a model; it is not changed.
        check: Encode with `fastokens` where this says that it agrees; None to leave it.
    """
    if not isinstance(tokenizer, TokenizersBackend):
        return tokenizer
    # The mixin tells the renderer that no pool of deep copies is needed: one thread renders.
    name = f"Render{type(tokenizer).__name__}"
    kind: Any = type(name, (_View, type(tokenizer), ThreadSafeHFTokenizerMixin), {})
    view = kind.__new__(kind)
    view.__dict__.update(tokenizer.__dict__)
    view._plain = tokenizer
    view._encoder = None if check is None else _fast_encoder(tokenizer, check)
    return view


def start_encoding(tokenizer: Any) -> None:
    """Have a view encode with `fastokens`, which starts threads: only after the last fork."""
    encoder = getattr(tokenizer, "_encoder", None)
    if encoder is not None:
        tokenizer._tokenizer = encoder


class _View:
    """Encodes by itself and decodes with the tokenizer it views."""

    _plain: Any
    _encoder: Any

    def __copy__(self) -> "_View":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._plain, memo)

    def __reduce__(self) -> Any:
        return self._plain.__reduce__()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # `fastokens` (0.3) tracks no offsets.
        if kwargs.get("return_offsets_mapping"):
            return self._plain(*args, **kwargs)
        return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def decode(self, *args: Any, **kwargs: Any) -> Any:
        return self._plain.decode(*args, **kwargs)

    def batch_decode(self, *args: Any, **kwargs: Any) -> Any:
        return self._plain.batch_decode(*args, **kwargs)

    def convert_ids_to_tokens(self, *args: Any, **kwargs: Any) -> Any:
        return self._plain.convert_ids_to_tokens(*args, **kwargs)

    def convert_tokens_to_ids(self, *args: Any, **kwargs: Any) -> Any:
        return self._plain.convert_tokens_to_ids(*args, **kwargs)

    def convert_tokens_to_string(self, *args: Any, **kwargs: Any) -> Any:
        return self._plain.convert_tokens_to_string(*args, **kwargs)


def _fast_encoder(tokenizer: Any, check: Check) -> Any:
    """The tokenizer's data in `fastokens`, None where that cannot be used."""
    try:
        encoder = fast_encoder(tokenizer)
    except ImportError:
        reason = "fastokens is not installed"
    except Exception as error:  # noqa: BLE001 - it reports what it lacks with plain exceptions
        reason = f"fastokens cannot read it: {' '.join(str(error).split())[:200]}"
    else:
        if check(tokenizer, encoder):
            _logger.info("render encodes with fastokens %s", version("fastokens"))
            return encoder
        reason = "fastokens encodes the check's texts differently"
    _logger.warning("render encodes with the model's own tokenizer: %s", reason)
    return None


def fast_encoder(tokenizer: Any) -> Any:
    """A tokenizer's data in `fastokens`.

    Raises:
        ImportError: `fastokens` is not installed.
        Exception: It does not know a part of this tokenizer.
    """
    from fastokens._compat import _TokenizerShim

    return _TokenizerShim(tokenizer.backend_tokenizer)


def agrees(tokenizer: Any, encoder: Any) -> bool:
    """Whether an encoder gives a tokenizer's IDs on the fixed corpus. Starts threads."""
    kind: Any = type("Checked", (_View, type(tokenizer)), {})
    view = kind.__new__(kind)
    view.__dict__.update(tokenizer.__dict__)
    view._plain, view._tokenizer = tokenizer, encoder
    return all(
        _encoded(view, text, special) == _encoded(tokenizer, text, special)
        for text in check_texts(tokenizer)
        for special in (True, False)
    )


def check_texts(tokenizer: Any) -> list[str]:
    """The corpus, with the tokenizer's own added tokens in the middle of user text."""
    added = sorted(tokenizer.get_added_vocab())[:64]
    return [
        *_SENTENCES,
        " ".join(_SENTENCES),
        "".join(f"{text} x{text}{text}\n{text[:-1]}" for text in added),
        *(f"a {text} b" for text in added[:16]),
        "long" * 4000,
        "Donaudampfschifffahrtsgesellschaft" * 300 + " 漢" * 500 + "!" * 3000 + "0" * 3000,
        " " * 5000 + "x" + "\n" * 3000 + "\t" * 1000,
        "\n".join(_SENTENCES) * 40,
    ]


def _encoded(tokenizer: Any, text: str, special: bool) -> tuple[list[int], list[int]]:
    whole = tokenizer(text, add_special_tokens=special)
    cut = tokenizer(text, add_special_tokens=special, truncation=True, max_length=20)
    return whole["input_ids"], cut["input_ids"]
