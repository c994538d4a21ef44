"""A scripted token-in / token-out engine: `POST /inference/v1/generate` without a model.

It needs a model folder for the tokenizer only and says what `loadtest.engine.script` holds, in JSON
or as server-sent events, at a pace and chunk size of choice. A client that goes away ends its
generation.

- `--recordings FILE` replays recorded traffic to requests whose ID is `rec-<name>`, or
  `rec-<name>-<i>` for prompt i of several (`loadtest.engine.replay`); `chatcmpl-` and `cmpl-` may
  stand before it.
- `--tokens-only` refuses stop strings, and fills the context for a request without `max_tokens`.
- `GET /health` answers once it serves, and `GET /stats` counts generations.
- `GET /requests` lists the last generate requests, newest last, and `DELETE /requests` forgets
  them (`loadtest.engine.journal`).
- `POST /faults` with `{"kind", "after", "count", "status"}` makes the next `count` generate
  requests fail (`loadtest.engine.faults`).

Run with `python -m loadtest.engine [--port N] [--model-dir DIR]`.
"""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

import uvicorn

from loadtest.engine.app import listen, server_config
from loadtest.engine.script import AUTO, SCRIPT_NAMES
from loadtest.engine.settings import ScriptedSettings
from loadtest.model.folder import MODEL_DIR


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
    parser.add_argument(
        "--tokens-only",
        action="store_true",
        help="refuse stop strings, and fill the context for a request without max_tokens",
    )
    parser.add_argument(
        "--recordings",
        type=Path,
        metavar="FILE",
        help="recordings (.jsonl or .jsonl.xz) to replay to requests with the ID rec-<name>",
    )
    return parser.parse_args(argv)


def _settings(args: argparse.Namespace) -> ScriptedSettings:
    return ScriptedSettings(
        model_dir=args.model_dir,
        served_model_name=args.served_model_name,
        script=args.script,
        tokens_per_chunk=args.tokens_per_chunk,
        tokens_per_second=args.tokens_per_second,
        tokens_only=args.tokens_only,
        recordings=args.recordings,
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
