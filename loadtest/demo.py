"""Show the front door: an OpenAI client on one side, an engine that knows only tokens on the other.

Starts the scripted engine and the service on the demo model, asks two questions through the
`openai` client (one answered as a stream, one in one piece), prints what can be tried from another
terminal, and keeps serving.

Run with `python -m loadtest.demo [--once] [--port N] [--engine-port N]`; port 0 takes a free one.
"""

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import openai
from openai import DefaultHttpxClient, OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam

from loadtest.make_demo_model import MODEL_DIR
from loadtest.printing import (
    Progress,
    StreamPrinter,
    print_answer,
    print_curl,
    print_python,
    print_tries,
    step,
)
from loadtest.processes import (
    ServerStartError,
    free_port,
    launch,
    port_is_free,
    stop,
    wait_healthy,
)

MODEL = "demo"
PROTOCOL_MODEL = "meta-llama/Llama-3.2-1B-Instruct"
"""Name in the examples of vLLM's derenderer documentation, which run against the demo as they are.
"""
HOST = "127.0.0.1"
START_TIMEOUT_S = 180.0
CALL_TIMEOUT_S = 30.0
TOKENS_PER_SECOND = 40.0
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


def serve_command(port: int, engine_port: int) -> list[str]:
    """Return the command line of the service on the demo model."""
    flags = ["--served-model-name", MODEL, PROTOCOL_MODEL, "--host", HOST, "--port", str(port)]
    engine = ["--engine-url", f"http://{HOST}:{engine_port}"]
    parsers = ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    command = [sys.executable, "-m", "gateway.cli", "serve", str(MODEL_DIR)]
    return [*command, *flags, *engine, *parsers, "--enable-auto-tool-choice"]


def engine_command(port: int) -> list[str]:
    """Return the command line of the scripted engine on the same tokenizer."""
    command = [sys.executable, "-m", "loadtest.engine", "--model-dir", str(MODEL_DIR)]
    pace = ["--tokens-only", "--tokens-per-second", str(TOKENS_PER_SECOND)]
    return [*command, "--host", HOST, "--port", str(port), *pace]


class Ending:
    """Turns signals into an exit that unwinds, but never between a start and its clean-up."""

    def __init__(self, exit_code: int) -> None:
        """Take over the signals that end a program in a terminal."""
        self._exit_code = exit_code
        self._armed = False
        self._due = False
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._record)

    def arm(self) -> None:
        """Exit on the next signal, or now when there was one."""
        self._armed = True
        if self._due:
            raise SystemExit(self._exit_code)

    def disarm(self) -> None:
        """Only record signals."""
        self._armed = False

    def _record(self, signum: int, frame: FrameType | None) -> None:
        self._due = True
        if self._armed:
            self._armed = False
            raise SystemExit(self._exit_code)


def run(port: int, engine_port: int, ending: Ending, *, once: bool) -> None:
    """Start both servers, run the round trips, and serve until a signal unless `once`.

    Raises:
        ServerStartError: A server did not come up.
        DemoError: A round trip failed.
    """
    with ExitStack() as stack:
        step(f"starting the scripted engine on port {engine_port} (tokens in, tokens out)")
        engine = launch(engine_command(engine_port))
        stack.callback(stop, engine)
        step(f"starting derender on port {port} (OpenAI's API in front of the engine)")
        service = launch(serve_command(port, engine_port), extra_env=_quiet())
        stack.callback(stop, service)
        stack.callback(ending.disarm)
        ending.arm()
        demo = Demo.of(f"http://localhost:{port}", stack)
        wait_healthy("scripted engine", engine, f"http://{HOST}:{engine_port}", START_TIMEOUT_S)
        with Progress("loading vLLM, which takes 15 to 30 s") as progress:
            wait_healthy("derender service", service, f"http://{HOST}:{port}", START_TIMEOUT_S)
        step(f"both serve after {progress.elapsed_s:.1f} s")
        demo.streamed()
        demo.one_shot()
        demo.tries()
        if not once:
            step(f"serving {demo.url} until Ctrl-C")
            code = service.wait()
            raise ServerStartError(f"the derender service ended with exit code {code}")


def _quiet() -> dict[str, str]:
    """Warnings and errors are all the service logs, unless the environment says otherwise."""
    return {"DERENDER_LOG_LEVEL": os.environ.get("DERENDER_LOG_LEVEL", "WARNING")}


def _choose_port(port: int, flag: str) -> int:
    """Return the port to use, a free one for 0.

    Raises:
        DemoError: Something else listens on it.
    """
    if port == 0:
        return free_port()
    if not port_is_free(port):
        raise DemoError(f"port {port} is taken; choose another one with {flag}")
    return port


def _parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.demo", description="Run the demo.")
    parser.add_argument("--once", action="store_true", help="end after the round trips")
    parser.add_argument("--port", type=int, default=8100, help="derender's port; 0: a free one")
    parser.add_argument(
        "--engine-port", type=int, default=8200, help="the engine's port; 0: a free one"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return its exit code: 0, or 1 with a line that says what failed."""
    args = _parse_args(argv)
    ending = Ending(exit_code=1 if args.once else 0)
    try:
        port = _choose_port(args.port, "--port")
        engine_port = _choose_port(args.engine_port, "--engine-port")
        run(port, engine_port, ending, once=args.once)
    except (DemoError, ServerStartError, httpx.HTTPError, openai.OpenAIError) as error:
        print(f"demo: failed: {error}", file=sys.stderr)
        return 1
    step("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
