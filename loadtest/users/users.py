"""Locust users that drive any derender server over HTTP; they import nothing of the project.

    locust -f loadtest/users/users.py --headless -u 32 -r 8 -t 60s -H http://127.0.0.1:8100

One-shot chat, plain streams (completions, which no parser touches) and chat streams, which the
server parses if it has parsers. Name classes to run only some: `... ChatStreamUser`.
"""

import itertools
import json
import time
import uuid
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from locust import FastHttpUser, events, task
from tokenizers import Tokenizer

CHAT_PATH = "/v1/chat/completions/derender"
COMPLETION_PATH = "/v1/completions/derender"

_TEXT = (
    "<think>\nThe question is simple, so the answer can be short.\n</think>\n\n"
    "The river is wide and slow, and the old lighthouse stands at the end of the pier. "
)
_ORDINARY_IDS = range(300, 800)
"""Sent without a tokenizer file; ordinary tokens in any vocabulary of language models."""

Json = dict[str, Any]


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _add_options(parser: ArgumentParser, **_: Any) -> None:
    group = parser.add_argument_group("derender")
    group.add_argument("--served-model", default="", help="default: the server's first model")
    group.add_argument("--prompt-tokens", type=int, default=64)
    group.add_argument("--output-tokens", type=int, default=256, help="per answer")
    group.add_argument("--chunk-tokens", type=int, default=1, help="per streamed chunk")
    group.add_argument(
        "--tokens-per-second", type=float, default=0.0, help="pace of a stream; 0: none"
    )
    group.add_argument(
        "--tokenizer-file", default="", help="tokenizer.json, to send real text with reasoning"
    )
    group.add_argument(
        "--checkpoints", action="store_true", default=False, help="ask for checkpoints (ours only)"
    )


class DerenderUser(FastHttpUser):
    """What all users share: token IDs and the members that every call repeats."""

    abstract = True
    options: Namespace
    served_model: str

    def on_start(self) -> None:
        """Ask for the model and make the tokens."""
        assert self.environment.parsed_options is not None
        self.options = self.environment.parsed_options
        self.served_model = self.options.served_model or self._first_model()
        self.output = _output(self.options.tokenizer_file, self.options.output_tokens)
        ordinary = itertools.cycle(_ORDINARY_IDS)
        self.prompt = list(itertools.islice(ordinary, self.options.prompt_tokens))

    def _first_model(self) -> str:
        with self.client.get("/v1/models", name="models") as response:
            name: str = json.loads(response.text or "")["data"][0]["id"]
            return name

    def chat_context(self) -> Json:
        """Members of a chat call beside the engine's."""
        messages = [{"role": "user", "content": "Tell me about the river."}]
        return {
            "model": self.served_model,
            "prompt_tokens": len(self.prompt),
            "prompt_token_ids": self.prompt,
            "chat_request": {"model": self.served_model, "messages": messages},
        }

    def completion_context(self) -> Json:
        """Members of a streamed completions call beside the engine's."""
        request = {"model": self.served_model, "prompt": "The river"}
        return {
            "model": self.served_model,
            "prompt_tokens": len(self.prompt),
            "prompt_token_ids": self.prompt,
            "completion_request": request,
        }

    def stream(self, path: str, context: Json, name: str) -> None:
        """Drive one stream to its end, or to its first failure."""
        request_id, state = f"load-{uuid.uuid4().hex}", None
        for choice in self._choices():
            begun = time.monotonic()
            chunk = {"request_id": request_id, "choices": [choice]}
            body: Json = {"stream": True, "generate_chunk": chunk, "stream_state": state}
            # The server holds the rest of what a checkpoint stands for.
            body |= {} if state and state.keys() == {"checkpoint"} else context
            with self.client.post(path, json=body, name=name, catch_response=True) as response:
                if response.status_code != HTTPStatus.OK:
                    response.failure(f"status {response.status_code}: {response.text}")
                    return
                state = json.loads(response.text or "")["stream_state"]
            self._wait(begun)

    def _choices(self) -> Iterator[Json]:
        """What the engine would send of one choice, chunk by chunk."""
        step = self.options.chunk_tokens
        for start in range(0, len(self.output), step):
            last = start + step >= len(self.output)
            ids = self.output[start : start + step]
            yield {"index": 0, "token_ids": ids, "finish_reason": "length" if last else None}

    def _wait(self, begun: float) -> None:
        if pace := self.options.tokens_per_second:
            due = begun + self.options.chunk_tokens / pace
            # Locust makes this a switch to other users.
            time.sleep(max(0.0, due - time.monotonic()))


class OneShotUser(DerenderUser):
    """Sends complete generations."""

    @task
    def chat(self) -> None:
        """One chat answer."""
        choice = {"index": 0, "token_ids": self.output, "finish_reason": "length"}
        response = {"request_id": f"load-{uuid.uuid4().hex}", "choices": [choice]}
        body = self.chat_context() | {"generate_response": response}
        self.client.post(CHAT_PATH, json=body, name="one-shot chat")


class PlainStreamUser(DerenderUser):
    """Streams completions."""

    @task
    def completion(self) -> None:
        """One stream."""
        self.stream(COMPLETION_PATH, self.completion_context(), "plain chunk")


class ChatStreamUser(DerenderUser):
    """Streams chat answers."""

    @task
    def chat(self) -> None:
        """One stream."""
        context = self.chat_context()
        context |= {"checkpoints": True} if self.options.checkpoints else {}
        self.stream(CHAT_PATH, context, "chat chunk")


def _output(tokenizer_file: str, tokens: int) -> list[int]:
    """A generation: text with reasoning where there is a tokenizer, else ordinary tokens."""
    if not tokenizer_file:
        return list(itertools.islice(itertools.cycle(_ORDINARY_IDS), tokens))
    text = _TEXT + _TEXT.partition("</think>\n\n")[2] * tokens
    encoding = Tokenizer.from_file(tokenizer_file).encode(text, add_special_tokens=False)
    ids: list[int] = encoding.ids[:tokens]
    return ids
