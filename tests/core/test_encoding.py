"""`fastokens` against each tokenizer's own encoding, and the check that decides."""

from typing import Any

import pytest

from core.protocol.options import ModelOptions
from core.vllm_adapter.encoding import (
    agrees,
    check_texts,
    fast_encoder,
    render_tokenizer,
    start_encoding,
)
from core.vllm_adapter.loading import load_model
from tests import models
from tests.serving import DEMO_MODEL

ENCODED_FAST = ("demo", "qwen", "deepseek")
EVERY = (*ENCODED_FAST, "spm")


class _Broken:
    """Encodes as `fastokens`, but drops what follows the last space."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode_batch(self, texts: list[str], **options: Any) -> Any:
        cut = [text.rpartition(" ")[0] or text for text in texts]
        return self._encoder.encode_batch(cut, **options)


def _tokenizer(name: str) -> Any:
    folder = DEMO_MODEL if name == "demo" else models.folder(name)
    return load_model(ModelOptions(model=str(folder)), lambda step: None).tokens.tokenizer


@pytest.mark.parametrize("name", EVERY)
def test_a_view_encodes_and_decodes_as_the_tokenizer(name: str) -> None:
    tokenizer = _tokenizer(name)
    view = render_tokenizer(tokenizer, agrees)
    assert (view._encoder is not None) == (name in ENCODED_FAST)
    start_encoding(view)
    for text in [*check_texts(tokenizer), "Some other text: élan vital, 42 × 7\u00a0= 294.\n" * 50]:
        for special in (True, False):
            ids = tokenizer(text, add_special_tokens=special)["input_ids"]
            assert view(text, add_special_tokens=special)["input_ids"] == ids
            assert view.decode(ids, skip_special_tokens=special) == tokenizer.decode(
                ids, skip_special_tokens=special
            )
        offsets = view(text, return_offsets_mapping=True)["offset_mapping"]
        assert offsets == tokenizer(text, return_offsets_mapping=True)["offset_mapping"]


def test_an_encoder_that_differs_is_told() -> None:
    tokenizer = _tokenizer("demo")
    encoder = fast_encoder(tokenizer)
    assert agrees(tokenizer, encoder)
    assert not agrees(tokenizer, _Broken(encoder))


def test_it_can_be_turned_off() -> None:
    view = render_tokenizer(_tokenizer("demo"), None)
    start_encoding(view)
    assert view.backend_tokenizer is view._plain.backend_tokenizer
