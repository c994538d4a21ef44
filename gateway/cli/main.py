"""The `derender` command. Light: forked shards import this module again."""

import argparse
import importlib.metadata
import socket
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from gateway import __version__
from gateway.cli.flags import FLAGS, Flag, in_groups
from gateway.cli.resolving import resolve
from gateway.cli.settings import ServeSettings, SettingsError
from gateway.services.settings import GatewaySettings
from shards.service.signals import SignalRecord
from shards.service.supervisor import CannotStart, Service, Supervisor

CANNOT_START = 2

_FRAME_OVERHEAD_BYTES = 64 * 1024
_DRAIN_ALLOWANCE_S = 0.8
"""For the answers that tell callers the time is over."""

_DESCRIPTION = """\
Turn token IDs from a token-in / token-out engine into OpenAI responses, without a GPU.

MODEL is a folder with tokenizer files and config.json; no weights are read. Give the flags
`vllm serve` gets for the same model, so that reasoning and tool calls are split the same way.
"""

_EPILOG = """\
Every flag has an environment variable; a flag given wins over it.

examples:
  derender serve loadtest/demo_model --served-model-name demo
  derender serve ./Qwen3-8B --reasoning-parser qwen3 \\
      --tool-call-parser hermes --enable-auto-tool-choice --shards 4
  derender serve ./Qwen3-8B --engine-url http://engine-0:8000 http://engine-1:8000
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        _complain(f"{message} (see `derender serve --help`)")
        raise SystemExit(CANNOT_START)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the result is the exit code."""
    given = read(sys.argv[1:] if argv is None else argv)
    with SignalRecord() as signals:
        try:
            settings = resolve(given)
            listener = _listen(settings)
            Supervisor(_service(settings, listener), listener, signals).run()
        except (SettingsError, CannotStart) as error:
            _complain(str(error))
            return CANNOT_START
    return 0


def read(argv: Sequence[str]) -> dict[str, Any]:
    """Return what the command line says, by flag key; only flags that were given.

    Raises:
        SystemExit: It is not understood, or asks for help or the version, which is printed.
    """
    arguments = _parser().parse_args(_with_dashes(argv))
    return {key: value for key, value in vars(arguments).items() if value is not None}


def _service(settings: ServeSettings, listener: socket.socket) -> Service:
    gateway = GatewaySettings(
        url=_url(settings.host, listener),
        model=settings.model,
        http=settings.http,
        engines=settings.engines,
        table=settings.table,
        logs=settings.logs,
    )
    return Service(
        options=settings.model,
        counts=settings.counts,
        table=settings.table,
        logs=settings.logs,
        max_frame_bytes=_longest_frame(settings),
        gateway_command=(sys.executable, "-m", "gateway.worker"),
        gateway_settings=msgspec.json.encode(gateway),
        drain_s=settings.http.shutdown_timeout_s + _DRAIN_ALLOWANCE_S,
        preload=("argparse", "gateway.cli.resolving", "shards.service.supervisor"),
    )


def _longest_frame(settings: ServeSettings) -> int:
    """Bytes of the longest call a shard reads: a caller's body, or an engine's answers."""
    engine = settings.engines.max_body_bytes if settings.engines else 0
    return settings.http.max_body_bytes + engine + _FRAME_OVERHEAD_BYTES


def _listen(settings: ServeSettings) -> socket.socket:
    """Take the port at once, so that a taken one is known before anything slow."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise SettingsError(f"cannot listen on {where}: {error.strerror}") from None
    return listener


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="derender", description=_DESCRIPTION.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--version", action="version", version=_versions())
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    serve = commands.add_parser(
        "serve",
        help="serve a model",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for heading, flags in in_groups(FLAGS):
        group = serve.add_argument_group(heading)
        for flag in flags:
            _add(serve if flag.is_positional else group, flag)
    return parser


def _add(group: Any, flag: Flag) -> None:
    default = f"; default {flag.shown_default}" if flag.shown_default else ""
    text = f"{flag.setting.help}{default} ({flag.variable})".replace("%", "%%")
    if flag.is_positional:
        group.add_argument(flag.key, nargs="?", metavar=flag.metavar, help=text)
        return
    if flag.is_switch:
        options: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
    elif flag.is_many:
        options = {"metavar": flag.metavar, "nargs": "+", "action": "extend"}
    else:
        options = {"metavar": flag.metavar}
    group.add_argument(f"--{flag.name}", dest=flag.key, default=None, help=text, **options)


def _with_dashes(argv: Sequence[str]) -> list[str]:
    """Accept `--max_model_len` for `--max-model-len`, as vLLM does."""
    return [_dashed(word) if word.startswith("--") else word for word in argv]


def _dashed(word: str) -> str:
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _versions() -> str:
    try:
        vllm = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        vllm = "not installed"
    return f"derender-gateway {__version__} (vllm {vllm})"


def _complain(line: str) -> None:
    print(f"derender: error: {line}", file=sys.stderr)
