"""A stream may move between vLLM's own render server and this one, chunk by chunk, both ways."""

import itertools
import re
from typing import Any

import pytest

from tests.e2e.bodies import CHAT, COMPLETION, ENCODER, PROMPT_IDS
from tests.e2e.streams import CALL, REQUEST, new_id, post
from tests.serving import Service

Json = Any
OURS, THEIRS = "ours", "theirs"
ORDERS = {
    "in turn": (OURS, THEIRS),
    "in turn, theirs first": (THEIRS, OURS),
    "two each": (OURS, OURS, THEIRS, THEIRS),
    "three to one": (THEIRS, OURS, OURS, OURS),
}
TEXT = f"<think>Grüße, é🔥日本.</think>Hello there, é🔥.{CALL}\n{CALL}<|im_end|>"
_RANDOM = re.compile(r"chatcmpl-tool-[0-9a-f]+")


def events(name: str, text: str, *, logprobs: bool, apart: bool) -> list[Json]:
    """An engine's stream of one or two tokens at a time, its end with the last or apart."""
    ids = ENCODER.token_ids(text)
    sizes = itertools.cycle((1, 2, 1, 1))
    made: list[Json] = []
    at = 0
    while at < len(ids):
        part = ids[at : at + next(sizes)]
        made.append({"index": 0, "token_ids": part})
        if logprobs:
            made[-1]["logprobs"] = {"content": [position(token_id) for token_id in part]}
        at += len(part)
    if apart:
        made.append({"index": 0, "token_ids": []})
    made[-1]["finish_reason"] = "length" if apart else "stop"
    chunks: list[Json] = [{"request_id": name, "choices": [choice]} for choice in made]
    usage = {"prompt_tokens": 3, "completion_tokens": len(ids), "total_tokens": 3 + len(ids)}
    return [*chunks, {"request_id": name, "choices": [], "usage": usage}]


def position(token_id: int) -> Json:
    other = {"token_id": (token_id * 7 + 3) % 1690, "logprob": -2.5, "rank": 2}
    own = {"token_id": token_id, "logprob": -0.25, "rank": 1}
    return own | {"top_logprobs": [own, other]}


def drive(
    urls: dict[str, str], order: tuple[str, ...], path: str, given: list[Json], context: Json
) -> list[Json]:
    state = None
    answers = []
    for chunk, side in zip(given, itertools.cycle(order), strict=False):
        body = {"stream": True, "generate_chunk": chunk, "stream_state": state, **context}
        answers.append(post(urls[side], body, path))
        state = answers[-1]["stream_state"]
    return answers


def comparable(answer: Json, state_members: set[str]) -> Json:
    """An answer without the time, our own members and the digits of random tool-call IDs."""
    chunk = answer["chunk"] | {"created": 0}
    usage = chunk["usage"]
    # Members of the coupled server that vLLM's own derenderer lacks.
    chunk["usage"] = usage and {k: v for k, v in usage.items() if not k.endswith("details")}
    state = {key: answer["stream_state"][key] for key in state_members}
    return named({"chunk": chunk, "stream_state": state})


def named(part: Json) -> Json:
    if isinstance(part, dict):
        return {key: named(value) for key, value in part.items()}
    if isinstance(part, list):
        return [named(value) for value in part]
    return _RANDOM.sub("call", part) if isinstance(part, str) else part


def check(urls: dict[str, str], path: str, text: str, context: Json, apart: bool) -> list[Json]:
    """Every order gives the stream of either side alone."""
    logprobs = True
    theirs = drive(
        urls, (THEIRS,), path, events(new_id(), text, logprobs=logprobs, apart=apart), context
    )
    members = set(theirs[-1]["stream_state"])
    for order in ((OURS,), *ORDERS.values()):
        given = events(theirs[0]["chunk"]["id"], text, logprobs=logprobs, apart=apart)
        answers = drive(urls, order, path, given, context)
        for at, (answer, expected) in enumerate(zip(answers, theirs, strict=True)):
            assert comparable(answer, members) == comparable(expected, members), (order, at)
        if path == CHAT:
            check_call_ids(answers)
    return theirs


def check_call_ids(answers: list[Json]) -> None:
    """A tool call keeps its ID, whichever side named it."""
    sent = [
        call["id"]
        for answer in answers
        for choice in answer["chunk"]["choices"]
        for call in choice["delta"].get("tool_calls") or ()
        if call.get("id")
    ]
    assert sent == answers[-1]["stream_state"]["last_tool_call_ids"]
    assert len(set(sent)) == 2


@pytest.fixture
def urls(service: Service, reference_url: str) -> dict[str, str]:
    return {OURS: service.url, THEIRS: reference_url}


@pytest.mark.parametrize("apart", [False, True], ids=["end with tokens", "end apart"])
def test_a_parsed_chat_stream(urls: dict[str, str], apart: bool) -> None:
    context = {
        "prompt_tokens": len(PROMPT_IDS),
        "prompt_token_ids": PROMPT_IDS,
        "chat_request": REQUEST | {"logprobs": True, "top_logprobs": 2},
    }
    text = TEXT.removesuffix("<|im_end|>") if apart else TEXT
    answers = check(urls, CHAT, text, context, apart)
    deltas = [choice["delta"] for answer in answers for choice in answer["chunk"]["choices"]]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "Grüße, é🔥日本."
    assert "".join(delta.get("content") or "" for delta in deltas).startswith("Hello there, é🔥.")


@pytest.mark.parametrize("apart", [False, True], ids=["end with tokens", "end apart"])
def test_a_plain_completion_stream(urls: dict[str, str], apart: bool) -> None:
    context = {
        "prompt_tokens": len(PROMPT_IDS),
        "prompt_token_ids": PROMPT_IDS,
        "completion_request": {"prompt": "hi", "logprobs": 2},
    }
    text = "Grüße, é🔥日本, and good day.<|im_end|>"
    answers = check(urls, COMPLETION, text, context, apart)
    texts = [choice["text"] for answer in answers for choice in answer["chunk"]["choices"]]
    assert "".join(texts) == "Grüße, é🔥日本, and good day."
