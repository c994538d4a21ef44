"""Random generations: what an engine may send for one request, cut into chunks anywhere.

Drawn from a seeded `random.Random`, which is quick enough for thousands of calls.
"""

import random
from typing import NamedTuple

from tests.core.calling import Json, Setup, encode, tokens
from tests.core.generation import END, MARKUP, PROMPTS, SPECIAL, TOOLS, named_choice

_TEXTS = (
    "Well, 2+2…",
    "é🔥",
    "日本語 नम",
    " ok",
    "\n",
    "{",
    '"city"',
    "a b",
    "\u200d\u0301\ufffd",
    "</",
)
_STOPS = (["</"], ["city", "é"], ["ok", "\n"], ["2+2"], ["zzzzzz"])


class Stream(NamedTuple):
    """One choice of a generation, as engine chunks, and what the caller asked."""

    chunks: list[Json]
    request: Json
    prompt: list[int]
    served_by_vllm: bool
    """vLLM's own server takes it too: it refuses stop strings in a stream."""


def draw(setup: Setup, rng: random.Random, name: str) -> list[Stream]:
    """The choices of one generation."""
    request = _request(rng)
    prompt = encode(setup.model, rng.choice(PROMPTS))
    count = rng.choice((1, 1, 1, 2))
    streams = []
    for index in range(count):
        ids = _ids(setup.model, rng)
        chunks = _chunks(setup, rng, ids, index, shown=bool(request.get("logprobs")))
        events: list[Json] = [{"request_id": name, "choices": [part]} for part in chunks]
        if rng.random() < 0.2:
            events[0]["prompt_token_ids"] = prompt
        if rng.random() < 0.5:
            usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}
            events.append({"request_id": name, "choices": [], "usage": usage})
        streams.append(Stream(events, request, prompt, "stop" not in request))
    return streams


def _request(rng: random.Random) -> Json:
    request: Json = {"messages": [{"role": "user", "content": rng.choice(("hi", "hé" * 1200))}]}
    if rng.random() < 0.7:
        request["tools"] = TOOLS
        ways: list[Json] = [None, None, "none", "auto", "required", named_choice]
        choice = rng.choice(ways)
        if choice is not None:
            request["tool_choice"] = choice
    options: Json = {
        "include_reasoning": False,
        "parallel_tool_calls": False,
        "chat_template_kwargs": {"enable_thinking": rng.random() < 0.5},
        "skip_special_tokens": rng.random() < 0.5,
        "include_stop_str_in_output": True,
        "return_token_ids": True,
        "stop": rng.choice(_STOPS),
        "min_tokens": rng.randint(1, 8),
    }
    request |= {key: value for key, value in options.items() if rng.random() < 0.2}
    if rng.random() < 0.3:
        request |= {"logprobs": True, "top_logprobs": 1}
    return request


def _ids(model: str, rng: random.Random) -> list[int]:
    ids: list[int] = []
    for _ in range(rng.randint(1, 5)):
        kind = rng.random()
        if kind < 0.55:
            ids += encode(model, _cut(rng, rng.choice(MARKUP)))
        elif kind < 0.9:
            ids += encode(model, "".join(rng.choices(_TEXTS, k=rng.randint(1, 4))))
        elif kind < 0.95:
            ids += encode(model, rng.choice(SPECIAL[model]))
        else:
            ids += [rng.randrange(tokens(model).size) for _ in range(3)]
    return ids[:90] or [0]


def _cut(rng: random.Random, whole: str) -> str:
    """The text, or any part of it."""
    if rng.random() < 0.6:
        return whole
    start = rng.randint(0, len(whole))
    return whole[start : rng.randint(start, len(whole))]


def _chunks(
    setup: Setup, rng: random.Random, ids: list[int], index: int, *, shown: bool
) -> list[Json]:
    """The tokens in chunks of 1 to 9, ended with the last one, apart, or not at all."""
    ending = rng.choice(("end token", "length", "stop token", "apart", "none"))
    if ending == "end token":
        ids.append(*encode(setup.model, END[setup.model]))
    sizes = rng.choice(((1,), (1, 1, 2, 3), (1, 2, 3, 5, 9)))
    chunks, start = [], 0
    while start < len(ids):
        size = rng.choice(sizes)
        chunks.append(_part(rng, ids[start : start + size], index, shown))
        start += size
        if rng.random() < 0.03:
            chunks.append(_part(rng, [], index, shown))
    if ending == "apart":
        chunks.append(_part(rng, [], index, shown))
    if ending != "none":
        chunks[-1]["finish_reason"] = "length" if ending == "length" else "stop"
    if ending == "stop token":
        chunks[-1]["stop_reason"] = ids[-1]
    return chunks


def _part(rng: random.Random, ids: list[int], index: int, shown: bool) -> Json:
    part: Json = {"index": index, "token_ids": ids}
    if shown:
        part["logprobs"] = {"content": [_position(rng, token_id) for token_id in ids]}
    return part


def _position(rng: random.Random, token_id: int) -> Json:
    own = {"token_id": token_id, "logprob": -rng.random(), "rank": 1}
    return own | {"top_logprobs": [own]}
