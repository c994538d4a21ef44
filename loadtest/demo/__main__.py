"""Show the front door: an OpenAI client on one side, an engine that knows only tokens on the other.

Starts the scripted engine and the service on the demo model, asks two questions through the
`openai` client (one answered as a stream, one in one piece), prints what can be tried from another
terminal, and keeps serving.

Run with `python -m loadtest.demo [--once] [--port N] [--engine-port N]`; port 0 takes a free one.
"""

import argparse
import os
import sys
from contextlib import ExitStack

import httpx
import openai

from loadtest.demo.ending import Ending
from loadtest.demo.printing import Progress, step
from loadtest.demo.round_trips import MODEL, Demo, DemoError
from loadtest.model.folder import MODEL_DIR
from loadtest.servers.fleet import PARSERS
from loadtest.servers.launching import (
    ServerStartError,
    free_port,
    launch,
    port_is_free,
    stop,
    wait_healthy,
)

PROTOCOL_MODEL = "meta-llama/Llama-3.2-1B-Instruct"
"""Name in the examples of vLLM's derenderer documentation, which run against the demo as they are.
"""
HOST = "127.0.0.1"
START_TIMEOUT_S = 180.0
TOKENS_PER_SECOND = 40.0


def serve_command(port: int, engine_port: int) -> list[str]:
    """Return the command line of the service on the demo model."""
    flags = ["--served-model-name", MODEL, PROTOCOL_MODEL, "--host", HOST, "--port", str(port)]
    engine = ["--engine-url", f"http://{HOST}:{engine_port}"]
    command = [sys.executable, "-m", "gateway.cli", "serve", str(MODEL_DIR)]
    return [*command, *flags, *engine, *PARSERS]


def engine_command(port: int) -> list[str]:
    """Return the command line of the scripted engine on the same tokenizer."""
    command = [sys.executable, "-m", "loadtest.engine", "--model-dir", str(MODEL_DIR)]
    pace = ["--tokens-only", "--tokens-per-second", str(TOKENS_PER_SECOND)]
    return [*command, "--host", HOST, "--port", str(port), *pace]


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
