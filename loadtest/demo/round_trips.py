"""What the demo asks of a running service, and what it tells a reader to paste."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from openai import DefaultHttpxClient, OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam

from loadtest.demo.printing import (
    StreamPrinter,
    print_answer,
    print_curl,
    print_python,
    print_tries,
)

MODEL = "demo"
CALL_TIMEOUT_S = 30.0
MAX_TOKENS = 256
CHAT_PATH = "/v1/chat/completions"

SUM_QUESTION = "What is 2+2?"
WEATHER_QUESTION = "What is the weather in Paris?"
WEATHER_TOOL: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
SNIPPET = """\
from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key="none")
messages = [{{"role": "user", "content": "How is the weather in Köln?"}}]
for chunk in client.chat.completions.create(model="{model}", messages=messages, stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()"""
DERENDERED = "<think>\nEasy.\n</think>\n\nHello from token IDs!<|im_end|>"


class DemoError(Exception):
    """A round trip did not give what it has to; the message says what and why."""


@dataclass(frozen=True)
class Demo:
    """What talks to the service."""

    url: str
    http: httpx.Client
    openai: OpenAI

    @classmethod
    def of(cls, url: str, stack: ExitStack) -> "Demo":
        """Open clients, which the stack closes; they are never led through a proxy."""
        http = httpx.Client(timeout=CALL_TIMEOUT_S, trust_env=False)
        direct = DefaultHttpxClient(trust_env=False)
        client = OpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            timeout=CALL_TIMEOUT_S,
            max_retries=0,
            http_client=direct,
        )
        return cls(url, stack.enter_context(http), stack.enter_context(client))

    def streamed(self) -> None:
        """Ask with a tool, and print each part of the answer as it arrives."""
        printer = StreamPrinter(f"{WEATHER_QUESTION} (streamed, with a tool)")
        stream = self.openai.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": WEATHER_QUESTION}],
            tools=[WEATHER_TOOL],
            max_tokens=MAX_TOKENS,
            stream=True,
            stream_options={"include_usage": True},
        )
        for chunk in stream:
            printer.chunk(chunk.model_dump())
        if missing := printer.finish():
            raise DemoError(f"the streamed answer lacks {', '.join(missing)}")

    def one_shot(self) -> None:
        """Ask for an answer in one piece, and print it with the tokens it is made of."""
        answer = self.openai.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": SUM_QUESTION}],
            max_tokens=MAX_TOKENS,
            extra_body={"return_token_ids": True},
        ).model_dump()
        message = answer["choices"][0]["message"]
        if not message["content"] or not message.get("reasoning"):
            raise DemoError(f"the one-shot answer lacks its content or reasoning: {message}")
        print_answer(f"{SUM_QUESTION} (in one piece)", answer)

    def tries(self) -> None:
        """Print what can be pasted into another terminal."""
        question = [{"role": "user", "content": "Who are you?"}]
        streamed = {"model": MODEL, "messages": question, "stream": True}
        print_tries()
        print_python("the openai client", _python(), SNIPPET.format(url=self.url, model=MODEL))
        print_curl("the events as they are", "curl -N", f"{self.url}{CHAT_PATH}", streamed)
        print_curl(
            "token IDs into an answer, without an engine",
            "curl -s",
            f"{self.url}{CHAT_PATH}/derender",
            self._derender_body(),
        )

    def _derender_body(self) -> dict[str, Any]:
        """A short real answer as token IDs."""
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
        prompt = self._post(f"{CHAT_PATH}/render", chat)["token_ids"]
        text = {"model": MODEL, "prompt": DERENDERED, "add_special_tokens": False}
        token_ids = self._post("/tokenize", text)["tokens"]
        choice = {"index": 0, "token_ids": token_ids, "finish_reason": "stop"}
        return {
            "model": MODEL,
            "generate_response": {"request_id": "try-1", "choices": [choice]},
            "prompt_token_ids": prompt,
            "chat_request": chat,
        }

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        response = self.http.post(f"{self.url}{path}", json=body)
        if response.status_code != httpx.codes.OK:
            raise DemoError(f"{path} answered {response.status_code}: {response.text}")
        return response.json()


def _python() -> str:
    """This interpreter as one would type it."""
    path, here = Path(sys.executable), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
