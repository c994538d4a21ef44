"""What a service is told: flag over environment over default, checked before anything slow."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.cli.checks import check_engines, check_model, check_parsing, check_vllm
from gateway.cli.flags import FLAGS, Flag, build
from gateway.cli.settings import ServeSettings, SettingsError


def resolve(given: Mapping[str, Any]) -> ServeSettings:
    """Merge the command line with the environment and the defaults, and check the whole.

    Args:
        given: What the command line says by flag key; only flags that were given.

    Raises:
        SettingsError: A value is malformed, or names what is not there.
    """
    settings = merge(given, os.environ)
    check_engines(settings)
    check_vllm(settings.allow_untested_vllm)
    check_model(settings.model)
    check_parsing(settings.model)
    return settings


def merge(given: Mapping[str, Any], environment: Mapping[str, str]) -> ServeSettings:
    """Read the settings without a look at what they name.

    Raises:
        SettingsError: A value is malformed, or no model is named.
    """
    values = dict(_values(given, environment))
    if not values.get("model"):
        raise SettingsError("no model: give a folder, or set DERENDER_MODEL")
    return build(ServeSettings, values)


def _values(given: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield what was told, by flag key; defaults stay with the fields."""
    for flag in FLAGS:
        source, told = f"--{flag.name}", given.get(flag.key)
        # An empty MODEL, from an unset variable of a shell, counts as none.
        if told is None or (flag.is_positional and not told):
            source, told = flag.variable, _from_environment(flag, environment)
        if told is not None:
            yield flag.key, _value(flag, source, told)


def _from_environment(flag: Flag, environment: Mapping[str, str]) -> str | list[str] | None:
    """The flag's text in the environment, None where it is not set."""
    text = environment.get(flag.variable)
    if text is None:
        return None
    return [part for part in re.split(r"[,\s]+", text) if part] if flag.is_many else text


def _value(flag: Flag, source: str, told: str | list[str] | bool) -> Any:
    if isinstance(told, bool):
        return told
    if flag.is_many:
        return tuple(told)
    try:
        return flag.read(str(told))
    except ValueError as error:
        raise SettingsError(f"{source} {error}") from None
