"""Settings of a service: flag over environment over default, checked before anything slow."""

import importlib.metadata
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from core.protocol.options import ModelOptions
from gateway.cli.flags import FLAGS, MODEL, Flag
from gateway.engines.settings import EngineSettings
from shards.messages.logs import LogSettings
from shards.messages.orders import TableLimits

TESTED_VLLM = "0.33."

_CONFIG_FILES = ("config.json", "params.json")
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "tekken.json",
    "tiktoken.model",
)


class SettingsError(Exception):
    """A setting cannot be used; the message is one line that names it."""


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway process needs beside the shards."""

    url: str
    """Where it listens, for the log."""
    served_model_names: tuple[str, ...]
    model: str
    """Reported as `root` of each served model."""
    max_body_bytes: int
    """Longest request body read."""
    request_timeout_s: float = 120.0
    """How long one request may take, its body's arrival included."""
    write_timeout_s: float = 120.0
    """How long a caller may leave events of a stream unread."""
    api_keys: tuple[str, ...] = ()
    """Keys callers must send one of; empty lets every caller in."""
    engines: EngineSettings | None = None
    """The engines behind the front door; None serves no front door."""
    engine_model: str = ""
    """Name the engines are asked for; empty means the first served one."""
    streams_per_shard: int = 4096
    """Streams of the front door one shard may hold; more are refused."""
    drain_timeout_s: float = 2.7
    """How long open requests may take once the server shuts down."""
    logs: LogSettings


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `derender serve` was told."""

    model: ModelOptions
    host: str
    port: int
    shards: int
    render_shards: int
    max_body_bytes: int
    request_timeout_s: float
    write_timeout_s: float
    shutdown_timeout_s: float
    api_keys: tuple[str, ...]
    engines: EngineSettings | None
    engine_model: str
    table: TableLimits
    logs: LogSettings


def resolve(model: str | None, given: dict[str, Any]) -> ServeSettings:
    """Merge the command line with the environment and the defaults, and check the whole.

    Args:
        model: The positional MODEL, None where it is missing.
        given: Texts from the command line by flag key; only flags that were given.

    Raises:
        SettingsError: A value is malformed, or names what is not there.
    """
    values = {flag.key: _value(flag, given) for flag in FLAGS}
    model = model or os.environ.get(MODEL.variable)
    if not model:
        raise SettingsError(f"no model: give a folder, or set {MODEL.variable}")
    settings = _settings(model, values)
    _check_vllm(values["allow_untested_vllm"])
    _check_model(settings.model)
    _check_parsing(settings.model)
    return settings


def _value(flag: Flag, given: dict[str, Any]) -> Any:
    source, raw = f"--{flag.name}", given.get(flag.key)
    if raw is None:
        source, raw = flag.variable, _from_environment(flag)
    if raw is None:
        return flag.default
    if isinstance(raw, bool):
        return raw
    if flag.many:
        return tuple(raw)
    try:
        value = flag.read(str(raw))
    except ValueError as error:
        raise SettingsError(f"{source} {error}") from None
    if flag.choices and value not in flag.choices:
        raise SettingsError(f"{source} must be one of {', '.join(flag.choices)}, not {raw!r}")
    return value


def _from_environment(flag: Flag) -> str | list[str] | None:
    """The flag's text in the environment, None where it is not set."""
    text = os.environ.get(flag.variable)
    if text is None:
        return None
    return [part for part in re.split(r"[,\s]+", text) if part] if flag.many else text


def _settings(model: str, values: dict[str, Any]) -> ServeSettings:
    names = values["served_model_name"] or ()
    options = {key: values[key] for key in ModelOptions.__struct_fields__ if key in values}
    return ServeSettings(
        model=ModelOptions(model=model, served_model_names=names, **options),
        host=values["host"],
        port=values["port"],
        shards=values["shards"],
        render_shards=values["render_shards"],
        max_body_bytes=values["max_body_bytes"],
        request_timeout_s=values["request_timeout"],
        write_timeout_s=values["write_timeout"],
        shutdown_timeout_s=values["shutdown_timeout"],
        api_keys=values["api_key"] or (),
        engines=_engines(values),
        engine_model=values["engine_model"] or "",
        table=TableLimits(
            streams=values["live_streams"],
            tokens=values["live_tokens"],
            ttl_s=values["live_ttl"],
        ),
        logs=LogSettings(level=values["log_level"], format=values["log_format"]),
    )


def _engines(values: dict[str, Any]) -> EngineSettings | None:
    """How engines are reached; None where none is named."""
    urls = tuple(dict.fromkeys(url.rstrip("/") for url in values["engine_url"] or ()))
    if not urls:
        return None
    if not values["render_shards"]:
        raise SettingsError("--engine-url requires --render-shards to be at least 1")
    try:
        return EngineSettings(
            urls=urls,
            api_key=values["engine_api_key"] or "",
            forward_authorization=values["forward_authorization"],
            connect_timeout_s=values["engine_connect_timeout"],
            idle_timeout_s=values["engine_idle_timeout"],
            max_connections=values["engine_max_requests"],
        )
    except ValueError as error:
        raise SettingsError(f"--engine-url: {error}") from None


def _check_vllm(allow_untested: bool) -> None:
    try:
        version = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        raise SettingsError(f"vllm is not installed; {TESTED_VLLM}x is needed") from None
    if not version.startswith(TESTED_VLLM) and not allow_untested:
        raise SettingsError(
            f"vllm {version} is installed, but {TESTED_VLLM}x is what this release was tested "
            "with; install that, or add --allow-untested-vllm"
        )


def _check_model(options: ModelOptions) -> None:
    _check_path("--tokenizer", options.tokenizer)
    _check_path("--hf-config-path", options.hf_config_path)
    _check_path("--generation-config", options.generation_config)
    folder = Path(options.model)
    if not folder.exists():
        if options.model.startswith(("/", ".", "~")) or options.model.count("/") > 1:
            raise SettingsError(f"model folder {options.model!r} does not exist")
        return  # A hub name: the loader looks it up.
    if not folder.is_dir():
        raise SettingsError(f"model {options.model!r} is not a folder")
    home = Path(options.hf_config_path or options.model)
    if home.is_dir() and not any((home / name).is_file() for name in _CONFIG_FILES):
        raise SettingsError(f"folder {str(home)!r} has no config.json")
    tokenizer = Path(options.tokenizer or options.model)
    if tokenizer.is_dir() and not any((tokenizer / name).is_file() for name in _TOKENIZER_FILES):
        raise SettingsError(f"folder {str(tokenizer)!r} has no tokenizer files")


def _check_path(flag: str, path: str | None) -> None:
    """Refuse what looks like a path and is none; anything else may be a hub name."""
    if path and path.startswith(("/", ".", "~")) and not Path(path).exists():
        raise SettingsError(f"{flag} {path!r} does not exist")


def _check_parsing(options: ModelOptions) -> None:
    if options.enable_auto_tool_choice and not options.tool_call_parser:
        raise SettingsError("--enable-auto-tool-choice requires --tool-call-parser")
    for name in ("tool_parser_plugin", "reasoning_parser_plugin"):
        path = getattr(options, name)
        if path and not Path(path).is_file():
            raise SettingsError(f"--{name.replace('_', '-')} {path!r} is not a file")
    template = options.chat_template
    if template and not any(mark in template for mark in "{}\n"):
        try:
            Path(template).read_bytes()
        except OSError as error:
            raise SettingsError(f"--chat-template {template!r}: {error.strerror}") from None
