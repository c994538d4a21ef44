"""Show the whole way of a request: prompt IDs, the engine's token IDs, the OpenAI response.

Starts the service on the demo model and the scripted engine, runs the protocol's two round trips
(one-shot and streamed), prints the answers as they arrive, and keeps serving.

Run with `python -m loadtest.demo [--once] [--port N] [--engine-port N]`; port 0 takes a free one.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any

import httpx

from loadtest.make_demo_model import MODEL_DIR
from loadtest.printing import StreamPrinter, print_answer, print_curl, step
from loadtest.processes import (
    ServerStartError,
    free_port,
    launch,
    port_is_free,
    stop,
    wait_healthy,
)
from loadtest.prompt import PromptEncoder

MODEL = "demo"
HOST = "127.0.0.1"
START_TIMEOUT_S = 180.0
CALL_TIMEOUT_S = 30.0
TOKENS_PER_SECOND = 40.0
DERENDER_PATH = "/v1/chat/completions/derender"
GENERATE_PATH = "/inference/v1/generate"

WEATHER_TOOL = {
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
ONE_SHOT_REQUEST: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is 2+2?"}],
    "max_tokens": 256,
}
STREAMED_REQUEST: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": [WEATHER_TOOL],
    "max_tokens": 256,
    "stream": True,
    "stream_options": {"include_usage": True},
}


class DemoError(Exception):
    """A round trip did not give what it has to; the message says what and why."""


@dataclass(frozen=True)
class Demo:
    """Both servers' addresses, and what turns a request into prompt IDs."""

    client: httpx.Client
    encoder: PromptEncoder
    derender_url: str
    engine_url: str

    def one_shot(self) -> None:
        """Run the round trip that does not stream, and print its answer."""
        prompt, generated = self._generate(ONE_SHOT_REQUEST)
        response = self._derender(ONE_SHOT_REQUEST, prompt, {"generate_response": generated})
        message = response["choices"][0]["message"]
        if not message["content"] or not message["reasoning"]:
            raise DemoError(f"the one-shot answer lacks its content or reasoning: {message}")
        print_answer(generated["choices"][0]["token_ids"], response)

    def streamed(self) -> None:
        """Run the streamed round trip and print each part of the answer as it arrives."""
        prompt = self.encoder.encode(STREAMED_REQUEST)
        printer = StreamPrinter()
        state: Any = None
        for chunk in self._stream(STREAMED_REQUEST, prompt):
            members = {"stream": True, "generate_chunk": chunk, "stream_state": state}
            answer = self._derender(STREAMED_REQUEST, prompt, members)
            state = answer["stream_state"]
            printer.chunk(answer["chunk"])
        if missing := printer.finish():
            raise DemoError(f"the streamed answer lacks {', '.join(missing)}")

    def curl(self) -> None:
        """Print a command line that derenders a short real answer."""
        text = "<think>\nEasy.\n</think>\n\nHello from token IDs!<|im_end|>"
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
        choice = {
            "index": 0,
            "token_ids": self.encoder.token_ids(text),
            "finish_reason": "stop",
        }
        body = {
            "model": MODEL,
            "generate_response": {"request_id": "try-1", "choices": [choice]},
            "prompt_token_ids": self.encoder.encode(chat),
            "chat_request": chat,
        }
        print_curl(f"{self.derender_url}{DERENDER_PATH}", body)

    def _generate(self, chat_request: dict[str, Any]) -> tuple[list[int], Any]:
        prompt = self.encoder.encode(chat_request)
        url = f"{self.engine_url}{GENERATE_PATH}"
        return prompt, _post(self.client, url, _generate_body(chat_request, prompt))

    def _stream(self, chat_request: dict[str, Any], prompt: list[int]) -> Iterator[Any]:
        """Yield the events of the engine's stream."""
        url = f"{self.engine_url}{GENERATE_PATH}"
        body = _generate_body(chat_request, prompt)
        with self.client.stream("POST", url, json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise DemoError(f"{url} answered {response.status_code}: {response.read()!r}")
            for line in response.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line.removeprefix("data: "))

    def _derender(
        self, chat_request: dict[str, Any], prompt: list[int], members: dict[str, Any]
    ) -> Any:
        context = {
            "model": MODEL,
            "prompt_tokens": len(prompt),
            "prompt_token_ids": prompt,
            "chat_request": chat_request,
        }
        return _post(self.client, f"{self.derender_url}{DERENDER_PATH}", {**context, **members})


def _generate_body(chat_request: dict[str, Any], prompt: list[int]) -> dict[str, Any]:
    """Return the engine's request; what a render call would give."""
    body = {
        "model": MODEL,
        "token_ids": prompt,
        "sampling_params": {"max_tokens": chat_request["max_tokens"]},
    }
    streaming = ("stream", "stream_options")
    return body | {key: chat_request[key] for key in streaming if key in chat_request}


def _post(client: httpx.Client, url: str, body: dict[str, Any]) -> Any:
    response = client.post(url, json=body)
    if response.status_code != httpx.codes.OK:
        raise DemoError(f"{url} answered {response.status_code}: {response.text}")
    return response.json()


def serve_command(port: int) -> list[str]:
    """Return the command line of the service on the demo model."""
    flags = ["--served-model-name", MODEL, "--host", HOST, "--port", str(port)]
    parsers = ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    command = [sys.executable, "-m", "gateway.cli", "serve", str(MODEL_DIR)]
    return [*command, *flags, *parsers, "--enable-auto-tool-choice"]


def engine_command(port: int) -> list[str]:
    """Return the command line of the scripted engine on the same tokenizer."""
    command = [sys.executable, "-m", "loadtest.engine", "--model-dir", str(MODEL_DIR)]
    pace = ["--tokens-per-second", str(TOKENS_PER_SECOND)]
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
    started = time.monotonic()
    with ExitStack() as stack:
        step(f"starting derender on port {port} (it loads vLLM, which takes a while)")
        service = launch(serve_command(port))
        stack.callback(stop, service)
        step(f"starting the scripted engine on port {engine_port}")
        engine = launch(engine_command(engine_port))
        stack.callback(stop, engine)
        stack.callback(ending.disarm)
        ending.arm()
        demo = Demo(
            client=stack.enter_context(httpx.Client(timeout=CALL_TIMEOUT_S, trust_env=False)),
            encoder=PromptEncoder(MODEL_DIR),
            derender_url=f"http://{HOST}:{port}",
            engine_url=f"http://{HOST}:{engine_port}",
        )
        wait_healthy("scripted engine", engine, demo.engine_url, START_TIMEOUT_S)
        wait_healthy("derender service", service, demo.derender_url, START_TIMEOUT_S)
        step(f"both serve after {time.monotonic() - started:.1f} s")
        demo.one_shot()
        demo.streamed()
        demo.curl()
        if not once:
            step("serving until Ctrl-C")
            code = service.wait()
            raise ServerStartError(f"the derender service ended with exit code {code}")


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
    except (DemoError, ServerStartError, httpx.HTTPError) as error:
        print(f"demo: failed: {error}", file=sys.stderr)
        return 1
    step("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
