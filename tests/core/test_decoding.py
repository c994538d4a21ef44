"""Decoding equals the coupled server's decoder, however the tokens are cut."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from vllm import SamplingParams
from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer

from core.protocol.stream_state import StreamState
from core.text.decoding import (
    REPLACEMENT,
    SEED_OVERLAP,
    SEED_TOKENS,
    ByteTextStream,
    SteppedTextStream,
    WindowTextStream,
    decode_all,
    open_stream,
    seed_state,
)
from tests.core import generation
from tests.core.calling import encode, tokens

MODELS = ("qwen", "deepseek", "spm")
BYTES = {"spm": [*range(3, 259)], "qwen": [*range(256)], "deepseek": [*range(3, 259)]}


def coupled(
    model: str, prompt: list[int] | None, ids: list[int], skip: bool, spaces: bool
) -> list[str]:
    """What vLLM's engine settles with each token."""
    params = SamplingParams(skip_special_tokens=skip, spaces_between_special_tokens=spaces)
    request: Any = SimpleNamespace(
        sampling_params=params, request_id="r", prompt_token_ids=prompt or []
    )
    decoder = FastIncrementalDetokenizer(tokens(model).tokenizer, request)
    return [decoder.decode_next(token_id) for token_id in ids]


@st.composite
def sequences(draw: generation.Draw, model: str) -> list[int]:
    """Tokens with a good share of single bytes, which is where decoding is hard."""
    part = st.one_of(
        generation.output_ids(model),
        st.lists(st.sampled_from(BYTES[model]), max_size=6),
        st.text("é€🔥日𝄞", max_size=3).map(lambda text: byte_tokens(model, text)),
        st.sampled_from(generation.SPECIAL[model]).map(lambda text: encode(model, text)),
    )
    return [token_id for ids in draw(st.lists(part, max_size=4)) for token_id in ids]


def byte_tokens(model: str, text: str) -> list[int]:
    """A text as one token per byte."""
    table = {tokens(model).decode([number], False): number for number in BYTES[model]}
    if model != "spm":
        return [table[character] for character in text if character in table]
    return [octet + 3 for octet in text.encode()]


@st.composite
def prompts(draw: generation.Draw, model: str) -> list[int]:
    """Prompts whose end reads as text from where decoding starts.

    `test_a_prompt_cut_inside_a_character_is_not_sent` says what holds for the others.
    """
    ids = draw(
        st.one_of(
            st.one_of(generation.texts, st.sampled_from(generation.PROMPTS)).map(
                lambda text: encode(model, text)
            ),
            sequences(model),
        )
    )
    for start in (SEED_TOKENS, SEED_OVERLAP):
        assume(REPLACEMENT not in tokens(model).decode(ids[-start:], False))
    return ids


@st.composite
def cases(draw: generation.Draw, model: str) -> tuple[list[int] | None, list[int], bool, bool]:
    prompt = draw(st.one_of(st.none(), st.just([]), prompts(model)))
    return prompt, draw(sequences(model)), draw(st.booleans()), draw(st.booleans())


by_model = pytest.mark.parametrize("model", MODELS)


@by_model
@given(data=st.data())
def test_stream_equals_the_engine_token_by_token(model: str, data: st.DataObject) -> None:
    prompt, ids, skip, spaces = data.draw(cases(model))
    stream = open_stream(tokens(model), prompt, skip, spaces or skip)
    ours = [stream.feed([token_id]) for token_id in ids]
    assert ours == coupled(model, prompt, ids, skip, spaces)


@by_model
@given(data=st.data())
def test_chunks_do_not_change_the_text(model: str, data: st.DataObject) -> None:
    prompt, ids, skip, spaces = data.draw(cases(model))
    spaces = spaces or skip
    whole = "".join(coupled(model, prompt, ids, skip, spaces))
    assert decode_all(tokens(model), prompt, ids, skip, spaces) == whole
    stream = open_stream(tokens(model), prompt, skip, spaces)
    assert "".join(stream.feed(part) for part in data.draw(cuts(ids))) == whole


@by_model
@given(data=st.data())
def test_carried_window_resumes_anywhere(model: str, data: st.DataObject) -> None:
    prompt, ids, skip, spaces = data.draw(cases(model))
    spaces = spaces or skip
    state = seed_state(tokens(model), prompt, skip)
    texts = []
    for token_id in ids:
        stream = WindowTextStream(tokens(model), state, skip, spaces)
        texts.append(stream.feed([token_id]))
        state = StreamState()
        stream.save(state)
        assert len(state.prev_tokens) <= 1024
    assert texts == coupled(model, prompt, ids, skip, spaces)


@st.composite
def cuts(draw: generation.Draw, ids: list[int]) -> list[list[int]]:
    """The tokens cut into chunks of 0 to 9."""
    parts, start = [], 0
    while start < len(ids):
        size = draw(st.integers(0, 9))
        parts.append(ids[start : start + size])
        start += size
    return parts


@by_model
def test_a_prompt_cut_inside_a_character_is_not_sent(model: str) -> None:
    """The engine's decoder takes such a prompt for output; vLLM's derenderer and ours do not."""
    prompt, ids = [*encode(model, "x"), cut_byte(model)], encode(model, "<y")
    engine = "".join(coupled(model, prompt, ids, True, True))
    assert engine.startswith("x")
    assert decode_all(tokens(model), prompt, ids, True, True) == engine[2:]


def test_the_fastest_exact_stream_is_taken() -> None:
    assert isinstance(open_stream(tokens("qwen"), None, True, True), ByteTextStream)
    assert isinstance(open_stream(tokens("deepseek"), None, True, True), ByteTextStream)
    assert isinstance(open_stream(tokens("spm"), None, True, True), SteppedTextStream)
    cut = encode("qwen", "🔥")[:1]
    assert tokens("qwen").decode(cut, False).endswith("\ufffd")
    assert isinstance(open_stream(tokens("qwen"), cut, True, True), WindowTextStream)


def test_the_prompt_keeps_the_leading_space() -> None:
    ids = encode("spm", "Hello there")
    prompt = encode("spm", "hi")
    assert decode_all(tokens("spm"), prompt, ids, True, True) == " Hello there"
    assert decode_all(tokens("spm"), None, ids, True, True) == "Hello there"


@by_model
def test_a_tail_inside_a_character_is_dropped(model: str) -> None:
    ids = encode(model, "x")
    text = decode_all(tokens(model), encode(model, "a"), [*ids, cut_byte(model)], True, True)
    assert text.strip() == "x"


def cut_byte(model: str) -> int:
    """A token that is the first byte of a longer character."""
    if model == "spm":
        return 3 + 0xF0
    table = tokens(model).bytes_of(False)
    numbers: list[int] = BYTES[model]
    return next(number for number in numbers if table[number] == b"\xf0")
