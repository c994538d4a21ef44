"""A scripted token-in / token-out engine: `POST /inference/v1/generate` without a model.

It needs a model folder for the tokenizer only and says what `loadtest.script` holds, in JSON or
as server-sent events, at a pace and chunk size of choice. A client that goes away ends its
generation. `GET /health` answers once it serves, and `GET /stats` counts generations.

Run with `python -m loadtest.engine [--port N] [--model-dir DIR]`.
"""

import argparse
import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import uvicorn

from loadtest.connection import Connection, Pace, Receive, Scope, Send
from loadtest.generation import Generation, check_vocabulary
from loadtest.make_demo_model import MODEL_DIR
from loadtest.protocol import GenerateRequest, RequestError, decode_request
from loadtest.script import AUTO, SCRIPT_NAMES, ScriptModel, Scripts, load_model

App = Callable[[Scope, Receive, Send], Awaitable[None]]

DONE = b"data: [DONE]\n\n"
DRAIN_TIMEOUT_S = 3
PATHS = {"/inference/v1/generate": "POST", "/health": "GET", "/stats": "GET"}


@dataclass(frozen=True)
class EngineSettings:
    """How the engine answers."""

    model_dir: Path = MODEL_DIR
    """Folder with `tokenizer.json` and `config.json`."""
    served_model_name: str | None = None
    """The only model name taken; any name when missing."""
    script: str = AUTO
    """The name of the script said to every prompt, or `auto`."""
    tokens_per_chunk: int = 1
    """Tokens of one event, but for the first and last ones of a choice."""
    tokens_per_second: float = 0.0
    """Pace of each choice; 0 is as fast as possible."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if self.script not in SCRIPT_NAMES:
            raise ValueError(f"script must be one of {', '.join(SCRIPT_NAMES)}")
        if self.tokens_per_chunk < 1:
            raise ValueError("tokens_per_chunk must be at least 1")
        if self.tokens_per_second < 0:
            raise ValueError("tokens_per_second must not be negative")


@dataclass
class Stats:
    """Generations since the start; one in flight is started but neither finished nor aborted."""

    started: int = 0
    finished: int = 0
    aborted: int = 0


class Engine:
    """The scripted engine behind the routes."""

    def __init__(self, settings: EngineSettings) -> None:
        """Load the model folder of `settings`."""
        self._settings = settings
        self._model: ScriptModel = load_model(settings.model_dir)
        self._scripts = Scripts(self._model, settings.script)
        self.stats = Stats()

    async def generate(self, connection: Connection) -> None:
        """Serve one generate call, and count how it ends."""
        request = decode_request(await connection.body())
        self._check_model(request)
        if not request.stream:
            check_vocabulary(request, self._model)
        request_id = connection.header(b"x-request-id") or request.request_id
        generation = Generation(request, request_id, self._model, self._scripts)
        self.stats.started += 1
        completed = False
        watcher = asyncio.ensure_future(connection.watch())
        try:
            serve = self._stream if request.stream else self._respond
            completed = await serve(connection, generation)
        finally:
            watcher.cancel()
            self.stats.finished += completed
            self.stats.aborted += not completed

    async def _respond(self, connection: Connection, generation: Generation) -> bool:
        """Answer with JSON once all tokens are due; tell whether the client waited for it."""
        name = generation.request.model or self._model_name()
        response = generation.response(name)
        pace = Pace(self._settings.tokens_per_second)
        if not await connection.sleep(pace.wait_for(generation.steps)):
            return False
        await connection.answer(HTTPStatus.OK, response)
        return True

    async def _stream(self, connection: Connection, generation: Generation) -> bool:
        """Answer with server-sent events; tell whether the client stayed to the end."""
        await connection.start(HTTPStatus.OK, "text/event-stream; charset=utf-8")
        try:
            check_vocabulary(generation.request, self._model)
            stayed = await self._send_rounds(connection, generation)
        except RequestError as error:
            await connection.write(_event(error.body()), more=True)
            stayed = True
        if stayed:
            await connection.write(DONE)
        return stayed

    async def _send_rounds(self, connection: Connection, generation: Generation) -> bool:
        """Send each step when it is due, then the usage; tell whether the client stayed."""
        pace = Pace(self._settings.tokens_per_second)
        for events in generation.rounds(self._settings.tokens_per_chunk):
            tokens = len(events[0].choices[0].token_ids)
            if not await connection.sleep(pace.wait_for(tokens)):
                return False
            for event in events:
                await connection.write(_event(event), more=True)
        if usage := generation.usage_event():
            await connection.write(_event(usage), more=True)
        return True

    def _model_name(self) -> str:
        return self._settings.served_model_name or self._settings.model_dir.name

    def _check_model(self, request: GenerateRequest) -> None:
        """Refuse a model name that is not served."""
        served = self._settings.served_model_name
        if served is None or request.model in (None, served):
            return
        message = f"The model `{request.model}` does not exist. Valid aliases: {served}."
        raise RequestError(HTTPStatus.NOT_FOUND, message, "model", "NotFoundError")


def _event(body: Any) -> bytes:
    """Return one server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def build_app(settings: EngineSettings) -> App:
    """Return the engine as an ASGI application."""
    engine = Engine(settings)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Route one request."""
        connection = Connection(scope, receive, send)
        path, method = scope["path"], scope["method"]
        if path not in PATHS:
            await connection.answer(HTTPStatus.NOT_FOUND, {"detail": "Not Found"})
        elif method != PATHS[path]:
            await connection.answer(HTTPStatus.METHOD_NOT_ALLOWED, {"detail": "Method Not Allowed"})
        elif path == "/inference/v1/generate":
            try:
                await engine.generate(connection)
            except RequestError as error:
                await connection.answer(error.status, error.body())
        else:
            await connection.answer(HTTPStatus.OK, engine.stats if path == "/stats" else {})

    return app


def server_config(settings: EngineSettings) -> uvicorn.Config:
    """Return how uvicorn serves the engine."""
    return uvicorn.Config(
        build_app(settings),
        access_log=False,
        http="httptools",
        interface="asgi3",
        lifespan="off",
        log_level="warning",
        loop="uvloop",
        timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
        ws="none",
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def _parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.engine",
        description="Serve a scripted token-in / token-out engine.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8200, help="0 takes a free one")
    parser.add_argument("--model-dir", type=Path, default=MODEL_DIR)
    parser.add_argument("--served-model-name", help="the only model name to take (default: any)")
    parser.add_argument("--script", choices=SCRIPT_NAMES, default=AUTO)
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    parser.add_argument(
        "--tokens-per-second", type=float, default=0.0, help="0: as fast as possible"
    )
    return parser.parse_args(argv)


def _settings(args: argparse.Namespace) -> EngineSettings:
    return EngineSettings(
        model_dir=args.model_dir,
        served_model_name=args.served_model_name,
        script=args.script,
        tokens_per_chunk=args.tokens_per_chunk,
        tokens_per_second=args.tokens_per_second,
    )


def _exit_cleanly(signum: int, frame: FrameType | None) -> None:
    """End with exit code 0; uvicorn raises the signal again once it has drained."""
    sys.exit(0)


def main(argv: list[str] | None = None) -> int:
    """Run the engine until SIGTERM or Ctrl-C and return the exit code."""
    args = _parse_args(argv)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, _exit_cleanly)
    try:
        config = server_config(_settings(args))
        listener = listen(args.host, args.port)
    except (OSError, ValueError) as error:
        print(f"engine: cannot start: {error}", file=sys.stderr)
        return 2
    port = listener.getsockname()[1]
    print(f"engine: serving on http://{args.host}:{port}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
