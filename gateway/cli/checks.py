"""Checks of settings against each other and against what they name: folders, files, vLLM."""

import importlib.metadata
from pathlib import Path

from core.protocol.options import ModelOptions
from gateway.cli.settings import ServeSettings, SettingsError

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


def check_engines(settings: ServeSettings) -> None:
    """Look for who renders the requests that the engines get.

    Raises:
        SettingsError: Nobody does.
    """
    if settings.engines and not settings.counts.render_shards:
        raise SettingsError("--engine-url requires --render-shards to be at least 1")


def check_vllm(allow_untested: bool) -> None:
    """Refuse a vLLM this release was not tested with, unless that is allowed.

    Raises:
        SettingsError: It is missing or another.
    """
    try:
        version = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        raise SettingsError(f"vllm is not installed; {TESTED_VLLM}x is needed") from None
    if not version.startswith(TESTED_VLLM) and not allow_untested:
        raise SettingsError(
            f"vllm {version} is installed, but {TESTED_VLLM}x is what this release was tested "
            "with; install that, or add --allow-untested-vllm"
        )


def check_model(options: ModelOptions) -> None:
    """Look for the model's files; what is no folder here may be a hub name.

    Raises:
        SettingsError: A folder or file is missing.
    """
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


def check_parsing(options: ModelOptions) -> None:
    """Look at the flags of parsers and template, without loading them.

    Raises:
        SettingsError: A flag misses another, or names a file that cannot be read.
    """
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
