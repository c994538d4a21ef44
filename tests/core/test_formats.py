"""Events are what their structs say, byte for byte, those written from templates too."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.formats.sse import to_json
from core.protocol.openai import ChatChunk, CompletionChunk
from tests.core import generation
from tests.core.calling import QWEN, QWEN_PLAIN, Json, Setup, encode
from tests.core.front import DONE, Door, event, plan_of

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}


def events_of(setup: Setup, api: str, body: Json, text: str) -> list[bytes]:
    """The payloads of a streamed answer, token by token, without `[DONE]`."""
    plan = plan_of(setup, api, body)
    ids = encode("qwen", text)
    parts = [{"index": 0, "token_ids": [number]} for number in ids]
    parts.append({"index": 0, "token_ids": [], "finish_reason": "length"})
    given_events = [*({"choices": [part]} for part in parts), DONE]
    data = Door(setup, plan).take_each(event(payload) for payload in given_events).data
    return [sent.removeprefix(b"data: ") for sent in data.split(b"\n\n")[:-2]]


@pytest.mark.parametrize("setup", [QWEN, QWEN_PLAIN], ids=str)
@pytest.mark.parametrize("think", ["", "Hm.</think>"])
@given(text=generation.texts)
def test_chat_events_are_their_struct(setup: Setup, think: str, text: str) -> None:
    sent = events_of(setup, "chat", CHAT, think + text)
    assert sent
    for payload in sent:
        assert to_json(msgspec.json.decode(payload, type=ChatChunk)) == payload


@given(text=generation.texts, usage=st.booleans())
def test_completion_events_are_their_struct(text: str, usage: bool) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True} if usage else None
    body = {"prompt": "a", "stream": True, "stream_options": options}
    sent = events_of(QWEN_PLAIN, "completion", body, text)
    assert sent
    for payload in sent:
        assert to_json(msgspec.json.decode(payload, type=CompletionChunk)) == payload
