"""What the benchmark sends: prompts and generations of a given length, and the bodies of calls.

Everything follows from the model folder and the corpus of the demo model; there is no randomness.
"""

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from loadtest.model.folder import CORPUS
from loadtest.model.prompt import PromptEncoder
from loadtest.servers.fleet import SERVED_NAME

CHAT_PATH = "/v1/chat/completions/derender"
COMPLETION_PATH = "/v1/completions/derender"
REASONING_TOKENS = 64
"""Tokens of reasoning that each generation opens with."""

NO_STATE = b"null"
"""The state of a stream that has not begun."""
_encode = msgspec.json.Encoder().encode
_serial = itertools.count()

CHAT_REQUEST: dict[str, Any] = {
    "model": SERVED_NAME,
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Get the current weather of a city.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            },
        }
    ],
    "max_tokens": 16384,
    "stream": True,
}


class Workload:
    """Prompts and generations in the tokens of one model."""

    def __init__(self, model_dir: Path) -> None:
        """Load the tokenizer and encode the corpus once."""
        self._encoder = PromptEncoder(model_dir)
        self._text = self._encoder.token_ids(CORPUS.read_text(encoding="utf-8"))
        self._turn = self._encoder.token_ids("<|im_end|>\n<|im_start|>assistant\n")
        config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
        self._end: int = config["eos_token_id"]

    def prompt(self, tokens: int) -> list[int]:
        """A prompt of that many tokens, open for the assistant's turn."""
        return self._plain(tokens - len(self._turn)) + self._turn

    def output(self, tokens: int) -> list[int]:
        """The beginning of one generation: reasoning, then content that does not end."""
        opening = self._encoder.token_ids("<think>\n")
        closing = self._encoder.token_ids("\n</think>\n\n")
        reasoning = opening + self._plain(REASONING_TOKENS - len(opening) - len(closing)) + closing
        return (reasoning + self._plain(tokens))[:tokens]

    def finished(self, tokens: int) -> list[int]:
        """A whole generation of that many tokens, its end token included."""
        return [*self.output(tokens - 1), self._end]

    def _plain(self, tokens: int) -> list[int]:
        return list(itertools.islice(itertools.cycle(self._text), max(0, tokens)))


class Context:
    """What every call of a stream repeats, encoded once."""

    def __init__(self, prompt: Sequence[int], *, path: str = CHAT_PATH) -> None:
        """Take the prompt; the request is the benchmark's own."""
        self.path = path
        self.output_only = b'"prompt_tokens":%d' % len(prompt)
        completion = {"model": SERVED_NAME, "prompt": "What is the weather?", "stream": True}
        name, request = (
            ("chat_request", CHAT_REQUEST)
            if path == CHAT_PATH
            else ("completion_request", completion)
        )
        ids = _encode(prompt)
        self._fixed = b'%b,"prompt_token_ids":%b,"%b":%b' % (
            *(self.output_only, ids),
            *(name.encode(), _encode(request)),
        )

    def body(self, chunk: bytes, state: bytes, *, checkpoints: bool = False) -> bytes:
        """The body of a call that carries a whole state, or none yet."""
        asked = b',"checkpoints":true' if checkpoints else b""
        return _stream_body(chunk, state, self._fixed + asked)

    def small_body(self, chunk: bytes, state: bytes) -> bytes:
        """The body of a call that carries a checkpoint; the server holds the rest."""
        return _stream_body(chunk, state, self.output_only)


def _stream_body(chunk: bytes, state: bytes, more: bytes) -> bytes:
    return b'{"stream":true,"model":"%b","generate_chunk":%b,"stream_state":%b,%b}' % (
        *(SERVED_NAME.encode(), chunk),
        *(state, more),
    )


def new_request_id() -> str:
    """A request ID that no other stream of this run has."""
    return f"bench-{os.getpid()}-{next(_serial)}"


def chunk_json(request_id: str, ids: Sequence[int]) -> bytes:
    """One event of the engine's stream."""
    choice = {"index": 0, "token_ids": ids, "finish_reason": None, "logprobs": None}
    return _encode({"request_id": request_id, "choices": [choice], "usage": None})


def replay_state(ids: Sequence[int]) -> bytes:
    """The parser path's state after `ids` came one token a chunk, as the reference issues it."""
    return _encode(
        {
            "role_sent": True,
            "output_token_ids": ids,
            "output_chunk_lens": [1] * len(ids),
            "logprob_context_token_ids": ids[-4:],
        }
    )


def sampled_body(context: Context, output: Sequence[int], position: int) -> bytes:
    """The call that brings token `position` (from 1) of a stream nobody had to drive so far."""
    before, token = output[: position - 1], output[position - 1]
    state = replay_state(before) if before else NO_STATE
    return context.body(chunk_json(new_request_id(), [token]), state)


def one_shot_body(prompt: Sequence[int], output: Sequence[int], top_logprobs: int = 0) -> bytes:
    """A chat call with a complete generation."""
    request = {**CHAT_REQUEST, "stream": False}
    logprobs = None
    if top_logprobs:
        request |= {"logprobs": True, "top_logprobs": top_logprobs}
        logprobs = {"content": [_position(token, top_logprobs) for token in output]}
    choice = {"index": 0, "token_ids": output, "finish_reason": "stop", "logprobs": logprobs}
    return _encode(
        {
            "model": SERVED_NAME,
            "generate_response": {"request_id": new_request_id(), "choices": [choice]},
            "prompt_tokens": len(prompt),
            "prompt_token_ids": prompt,
            "chat_request": request,
        }
    )


def _position(token: int, top: int) -> dict[str, Any]:
    """Logprobs of one position: the sampled token first, then its neighbours in the vocabulary."""
    sampled = {"token_id": token, "logprob": -0.25, "rank": 1}
    others = ((token + step) % 1000 for step in range(1, top))
    candidates = [
        {"token_id": other, "logprob": -1.5 - rank, "rank": rank}
        for rank, other in enumerate(others, start=2)
    ]
    return {**sampled, "top_logprobs": [sampled, *candidates]}
