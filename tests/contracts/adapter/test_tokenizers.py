"""The insides of tokenizers, transformers and fastokens that encoding and decoding rely on."""

import json
from typing import Any

import pytest
from fastokens._compat import _TokenizerShim
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import TokenizersBackend
from vllm.tokenizers.hf import ThreadSafeHFTokenizerMixin, maybe_make_thread_pool

from core.vllm_adapter.encoding import agrees, render_tokenizer, start_encoding
from core.vllm_adapter.tokens import _INVALID_PREFIX, Tokens
from tests.contracts.adapter.model import model, renderer
from tests.contracts.adapter.reached import holds

_X = 256
_TAKEN_BACK = (*b"ab\xff", _X)
"""Each byte is text, until one that is none makes U+FFFD of it and of those before."""


# vLLM reads a field of its own that it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning")


class _Noting:
    """Passes everything on, and notes what is asked for.

    Attributes:
        asked: Names, as often as they are asked for.
    """

    def __init__(self, encoder: Any) -> None:
        self.asked: list[str] = []
        self._encoder = encoder

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._encoder, name)


@holds("transformers.TokenizersBackend._tokenizer")
def test_a_tokenizer_encodes_by_what_it_holds() -> None:
    tokenizer = model().tokens.tokenizer
    assert isinstance(tokenizer, TokenizersBackend)
    view = render_tokenizer(tokenizer, lambda *_: True)
    noting = view._encoder = _Noting(view._encoder)
    start_encoding(view)
    assert view.backend_tokenizer is noting
    assert view("some text")["input_ids"] == tokenizer("some text")["input_ids"]
    assert "encode_batch" in noting.asked
    assert tokenizer.backend_tokenizer is not noting


@holds("fastokens._compat._TokenizerShim")
def test_the_stand_in_is_made_of_a_tokenizer_and_gives_its_ids() -> None:
    tokenizer = model().tokens.tokenizer
    shim = _TokenizerShim(tokenizer.backend_tokenizer)
    ours, theirs = (
        [encoding.ids for encoding in encoder.encode_batch(["a b", "c"], add_special_tokens=False)]
        for encoder in (shim, tokenizer.backend_tokenizer)
    )
    assert ours == theirs
    assert agrees(tokenizer, shim)


@holds("vllm.tokenizers.hf.ThreadSafeHFTokenizerMixin")
def test_a_view_gets_no_pool_of_copies() -> None:
    view = render_tokenizer(model().tokens.tokenizer, None)
    assert isinstance(view, ThreadSafeHFTokenizerMixin)
    assert maybe_make_thread_pool(view, 4) is view
    # And it is what the renderer that vLLM builds encodes with.
    assert renderer()._online.renderer.get_tokenizer() is renderer()._tokenizer


@holds("tokenizers.decoders.Decoder.__getstate__")
@pytest.mark.parametrize(
    ("decoder", "parts"),
    [
        (decoders.ByteLevel(), ["ByteLevel"]),
        (decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]), ["ByteFallback", "Fuse"]),
    ],
)
def test_the_state_of_a_decoder_names_its_parts(decoder: Any, parts: list[str]) -> None:
    state = json.loads(decoder.__getstate__())
    assert [part["type"] for part in state.get("decoders", [state])] == parts
    backend = _byte_fallback_tokenizer()
    assert backend.decoder is not None
    assert "decoders" in json.loads(backend.decoder.__getstate__())


def test_the_decoder_of_a_byte_level_model_is_told() -> None:
    assert model().tokens.byte_level


def _byte_fallback_tokenizer() -> Tokenizer:
    vocabulary = {f"<0x{octet:02X}>": octet for octet in range(256)} | {"x": _X}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


@holds("tokenizers.decoders.DecodeStream.step")
def test_text_that_is_taken_back_is_told_by_its_words() -> None:
    tokenizer = _byte_fallback_tokenizer()
    stream = decoders.DecodeStream(skip_special_tokens=False)
    with pytest.raises(Exception, match=f"^{_INVALID_PREFIX}"):
        for token_id in _TAKEN_BACK:
            stream.step(tokenizer, token_id)


def test_what_was_not_decoded_goes_on_with_a_new_stream() -> None:
    class _Backed(Tokens):
        def __init__(self, backend: Tokenizer) -> None:
            self._backend = backend

    step = _Backed(_byte_fallback_tokenizer()).decode_stream([], skip=False)
    assert [step(token_id) for token_id in _TAKEN_BACK] == ["a", "b", "", "x"]
