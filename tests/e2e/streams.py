"""Whole streams over HTTP, chunk by chunk, and what the service counted meanwhile."""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpx

from core.protocol.ids import rendezvous, stream_id
from tests.e2e.bodies import CHAT, CHAT_REQUEST, ENCODER, PROMPT_IDS, Body

TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
REQUEST = CHAT_REQUEST | {"tools": [TOOL]}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
IDS = ENCODER.token_ids(f"<think>A greeting, é🔥.</think>Hello there.{CALL}\n{CALL}")
LONG = 20_000
"""Tokens of a history whose replay takes far longer than any other call."""

_numbers = itertools.count()
# A client of its own per call costs more than the call; servers come and go, so none is kept open.
_http = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0))
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


def new_id(shard: int | None = None, shards: int = 2) -> str:
    """A request ID nobody used; its first choice is served by the shard."""
    while True:
        name = f"live-{next(_numbers)}"
        if shard is None or rendezvous(stream_id(name, 0), shards) == shard:
            return name


def body(
    ids: Sequence[int],
    state: Any,
    request_id: str,
    finish: str | None = None,
    **members: Any,
) -> Body:
    """One chat chunk with its whole context."""
    choice = {"index": 0, "token_ids": list(ids), "finish_reason": finish}
    return {
        "stream": True,
        "generate_chunk": {"request_id": request_id, "choices": [choice]},
        "stream_state": state,
        "prompt_tokens": len(PROMPT_IDS),
        "prompt_token_ids": PROMPT_IDS,
        "chat_request": REQUEST,
    } | members


def long_body(request_id: str, tokens: int = LONG) -> Body:
    """A chunk that continues a long stream nobody has seen."""
    word = ENCODER.token_ids(" hello")[0]
    state = {"output_token_ids": [word] * tokens, "output_chunk_lens": [1] * tokens}
    return body([word], state | {"role_sent": True, "created": 5}, request_id)


def post(url: str, given: Body, path: str = CHAT, timeout_s: float = 60) -> Any:
    """A successful answer."""
    answer = _http.post(url + path, json=given, timeout=timeout_s)
    assert answer.status_code == 200, answer.text
    return answer.json()


def drive(
    urls: Iterable[str],
    request_id: str,
    *,
    ids: Sequence[int] = IDS,
    path: str = CHAT,
    before: Callable[[int], object] = lambda _: None,
    **members: Any,
) -> list[Any]:
    """The answers to a stream of single tokens, each served by the next server.

    Once a checkpoint was issued, neither prompt nor request travels.
    """
    state: Any = None
    answers = []
    for at, (token, url) in enumerate(zip(ids, itertools.cycle(urls), strict=False)):
        before(at)
        given = body([token], state, request_id, "stop" if at == len(ids) - 1 else None, **members)
        if members.get("checkpoints") and state is not None:
            del given["prompt_token_ids"], given["chat_request"]
        answers.append(post(url, given, path))
        state = answers[-1]["stream_state"]
    return answers


def chunks(answers: Iterable[Any]) -> list[Any]:
    """Their chunks without the time."""
    return [answer["chunk"] | {"created": 0} for answer in answers]


class Counts:
    """The service's metrics as they are."""

    def __init__(self, url: str) -> None:
        text = _http.get(f"{url}/metrics", timeout=30).text
        self._samples = [
            (match[1], match[2] or "", float(match[3]))
            for line in text.splitlines()
            if (match := _SAMPLE.fullmatch(line))
        ]

    def total(self, name: str, *labels: str) -> float:
        """Sum of the samples that have these labels, such as `shard="0"`."""
        return sum(
            value
            for found, given, value in self._samples
            if found == name and all(label in given.split(",") for label in labels)
        )

    def calls(self, outcome: str, shard: int | None = None) -> float:
        """Stream calls by how their stream was found."""
        return self.total("derender_stream_calls_total", f'outcome="{outcome}"', *_of(shard))

    def replays(self, cause: str, shard: int | None = None) -> float:
        """Streams rebuilt for a cause."""
        return self.total("derender_stream_replays_total", f'cause="{cause}"', *_of(shard))

    def replayed_tokens(self, shard: int | None = None) -> float:
        return self.total("derender_replayed_tokens_total", *_of(shard))

    def in_flight(self, shard: int | None = None) -> float:
        """Calls without an answer."""
        return self.total("derender_shard_calls_in_flight", *_of(shard))


def _of(shard: int | None) -> list[str]:
    return [] if shard is None else [f'shard="{shard}"']
