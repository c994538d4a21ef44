"""Bad inputs are refused with one clear sentence, before any tokenizer or parser runs."""

import copy
import json
from functools import cache
from typing import Any, NoReturn

import msgspec
import pytest

from core.answerer import Answerer
from core.protocol.errors import BadRequest
from core.vllm_adapter.parsing import ChatContext
from tests.core import refusal_table as table
from tests.core.calling import QWEN, QWEN_PLAIN, answer, call_of, model


class Untouchable:
    """A vocabulary that must not be asked."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"the tokenizer was asked for {name}")


@cache
def server(parsers: bool) -> Answerer:
    """A server with the table's bounds, whose tokenizer raises when touched."""
    bounded: Any = copy.copy(model(QWEN if parsers else QWEN_PLAIN))
    bounded.tokens = Untouchable()
    bounded.limits = msgspec.structs.replace(
        bounded.limits,
        max_model_len=table.MAX_MODEL_LEN,
        max_logprobs=table.MAX_LOGPROBS,
        max_sequences=table.MAX_SEQUENCES,
        vocab_size=table.VOCABULARY,
    )
    return Answerer(bounded)


@pytest.fixture(autouse=True)
def untouchable_parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object) -> NoReturn:
        raise AssertionError("a parser ran")

    monkeypatch.setattr(ChatContext, "parse", touched)
    monkeypatch.setattr(ChatContext, "open_stream", touched)


@pytest.mark.parametrize("case", table.TABLE, ids=lambda case: case.name)
def test_bad_input_is_refused(case: table.Refusal) -> None:
    with pytest.raises(BadRequest) as refused:
        call = call_of(json.dumps(case.body).encode(), case.endpoint)
        server(case.server == table.PARSERS).answer(call)
    error = refused.value
    assert error.param == case.param
    quoted = f"`{case.param}`"
    assert error.message.startswith(quoted)
    said = error.message.removeprefix(quoted)
    start = case.message.removesuffix("…")
    assert said.startswith(start) if start != case.message else said == start


@pytest.mark.parametrize("case", table.TABLE, ids=lambda case: case.name)
def test_a_refusal_is_one_clear_sentence(case: table.Refusal) -> None:
    with pytest.raises(BadRequest) as refused:
        call = call_of(json.dumps(case.body).encode(), case.endpoint)
        server(case.server == table.PARSERS).answer(call)
    message = refused.value.message
    assert "\n" not in message
    assert len(message) < 300
    assert message.endswith(".")
    assert not any(
        word in message for word in ("Traceback", "validation error", "msgspec", "body.")
    )


@pytest.mark.parametrize("body", [table.CHAT, table.CHUNK], ids=["chat", "chunk"])
def test_the_bodies_that_are_changed_are_good(body: table.Json) -> None:
    assert answer(QWEN_PLAIN, body)


@pytest.mark.parametrize(
    "body", [table.COMPLETION, table.COMPLETION_CHUNK], ids=["completion", "chunk"]
)
def test_the_completion_bodies_that_are_changed_are_good(body: table.Json) -> None:
    assert answer(QWEN_PLAIN, body, "completion")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"choices": [', id="truncated"),
        pytest.param(b'{"choices": [{"index": 1e400}], "role_sent": 1e400}', id="infinity"),
        pytest.param(b"[" * 5000, id="deep"),
        pytest.param(b'{"choices": "\xff", "role_sent": "\xff"}', id="not UTF-8"),
        pytest.param(b"NaN", id="no JSON"),
    ],
)
@pytest.mark.parametrize("member", ["generate", "stream_state", "prompt_token_ids", "request"])
def test_broken_members_are_refused(raw: bytes, member: str) -> None:
    good = call_of(json.dumps(table.CHUNK).encode(), "chat")
    with pytest.raises(BadRequest):
        server(False).answer(msgspec.structs.replace(good, **{member: raw}))
