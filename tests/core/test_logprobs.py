"""Logprobs read as the coupled server writes them, over chunk borders too."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm.entrypoints.generate.base.serving import decode_token_ids
from vllm.v1.engine.logprobs import LogprobsProcessor

from core.protocol.generate import GenerateLogprobs, LogprobCandidate, LogprobPosition
from core.protocol.rules import OutputRules
from core.text.logprobs import CONTEXT_TOKENS, FLOOR, LogprobWriter, context_tail
from tests.core.calling import Json, encode, tokens

RULES = OutputRules()
MODELS = ("qwen", "deepseek", "spm")
by_model = pytest.mark.parametrize("model", MODELS)


def positions(ids: list[int], logprob: float = -0.5) -> GenerateLogprobs:
    """Each token alone among its candidates."""
    return GenerateLogprobs(
        content=[
            LogprobPosition(
                token_id=number,
                logprob=logprob,
                top_logprobs=[LogprobCandidate(token_id=number, logprob=logprob)],
            )
            for number in ids
        ]
    )


def chat(model: str, ids: list[int], rules: OutputRules = RULES, context: list[int] = []) -> Json:  # noqa: B006
    written = LogprobWriter(tokens(model)).chat(positions(ids), rules, context)
    return json.loads(written)["content"]


def engine_texts(model: str, ids: list[int]) -> list[str]:
    """What the engine's own logprobs processor shows for sampled tokens."""
    tokenizer = tokens(model).tokenizer
    processor = LogprobsProcessor(tokenizer, [], None, None, None, None)
    texts: list[str] = []
    for at, number in enumerate(ids):
        ((text, _),) = decode_token_ids([number], tokenizer)
        if text.endswith("\ufffd"):
            text = processor._correct_decoded_token(number, ids[max(0, at - CONTEXT_TOKENS) : at])
        texts.append(text)
    return texts


@by_model
@given(text=st.text("aé€🔥日𝄞 \n", max_size=10))
def test_texts_equal_the_engine(model: str, text: str) -> None:
    ids = encode(model, text)
    assert [entry["token"] for entry in chat(model, ids)] == engine_texts(model, ids)


@pytest.mark.parametrize("model", ["qwen", "deepseek"])
@given(text=st.text("aé€🔥日𝄞 \n", max_size=10), size=st.integers(1, 4))
def test_bytes_join_to_the_text_over_chunks(model: str, text: str, size: int) -> None:
    ids, octets = encode(model, text), bytearray()
    context: list[int] = []
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        octets += bytes(octet for e in chat(model, part, RULES, context) for octet in e["bytes"])
        context = context_tail(context, part)
    # Tokenizers normalize; what counts is the text that the tokens decode to.
    assert octets.decode() == tokens(model).decode(ids, False)


@by_model
def test_texts_do_not_depend_on_chunks(model: str) -> None:
    ids = encode(model, "日本🔥 नमस्ते “é”")
    whole = [entry["token"] for entry in chat(model, ids)]
    context: list[int] = []
    for at, number in enumerate(ids):
        (entry,) = chat(model, [number], RULES, context)
        assert entry["token"] == whole[at]
        context = context_tail(context, [number])
    assert len(context) <= CONTEXT_TOKENS


def test_candidates_are_cut() -> None:
    (entry,) = chat("qwen", [5], OutputRules(top_logprobs=0))
    assert entry["top_logprobs"] == []


def test_tokens_as_ids() -> None:
    """The sampled token keeps its own bytes; those of candidates are the placeholder's."""
    (entry,) = chat("qwen", encode("qwen", "a"), OutputRules(tokens_as_ids=True))
    shown = entry["token"]
    assert shown == f"token_id:{encode('qwen', 'a')[0]}"
    assert bytes(entry["bytes"]) == b"a"
    assert bytes(entry["top_logprobs"][0]["bytes"]) == shown.encode()


def test_minus_infinity_is_floored() -> None:
    written = LogprobWriter(tokens("qwen")).chat(positions([5], -math.inf), RULES)
    (entry,) = json.loads(written)["content"]
    assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] == FLOOR


def test_without_content() -> None:
    writer = LogprobWriter(tokens("qwen"))
    assert writer.chat(GenerateLogprobs(), RULES) == b'{"content":null}'
    empty, offset = writer.completion(GenerateLogprobs(), RULES, (), 7)
    assert offset == 7
    assert json.loads(empty)["tokens"] == []


def test_an_id_without_a_token() -> None:
    unknown = tokens("qwen").size + 1
    (entry,) = chat("qwen", [unknown])
    assert entry["token"] == ""
    assert entry["bytes"] is None


def test_completion_offsets_are_absolute() -> None:
    writer = LogprobWriter(tokens("qwen"))
    ids = encode("qwen", "one two three")
    written, offset = writer.completion(positions(ids), RULES, (), 10)
    lists = json.loads(written)
    assert lists["text_offset"][0] == 10
    assert offset == 10 + len("one two three")
    assert "".join(lists["tokens"]) == "one two three"
    assert lists["top_logprobs"] == [{text: -0.5} for text in lists["tokens"]]


def test_a_position_without_candidates_is_null_in_completions() -> None:
    bare = GenerateLogprobs(content=[LogprobPosition(token_id=5, logprob=-1.0)])
    written, _ = LogprobWriter(tokens("qwen")).completion(bare, RULES)
    assert json.loads(written)["top_logprobs"] == [None]
