"""Readers of a setting's text: each makes the value, or raises ValueError with the reason."""

import json
import re
from collections.abc import Callable
from typing import Any

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


def one_of(choices: tuple[str, ...], text: str) -> str:
    """Read one of the choices; those in capitals are taken in any case."""
    in_capitals = all(choice.isupper() for choice in choices)
    value = text.strip().upper() if in_capitals else text
    if value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}")
    return value


def whole_number(least: int | None, most: int | None, text: str) -> int:
    """Read an integer between bounds; `8k` is 8,000 and `8K` is 8,192, as in vLLM."""
    value = _human_integer(text.strip())
    if (least is not None and value < least) or (most is not None and value > most):
        bound = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"must be {bound}, not {value}")
    return value


def _seconds(text: str) -> float:
    """Read a time span in seconds; fractions are fine."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"must be a number of seconds, not {text!r}") from None
    if not 0 < value < float("inf"):
        raise ValueError(f"must be more than 0 seconds, not {text!r}")
    return value


def _switch(text: str) -> bool:
    """Read a switch from the environment."""
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"must be true or false, not {text!r}")
    return word in _TRUE


def _object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"must be a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, not {text!r}")
    return value


def _names(text: str) -> dict[str, str]:
    """Read a JSON object whose values are strings."""
    value = _object(text)
    if not all(isinstance(name, str) for name in value.values()):
        raise ValueError(f"must be a JSON object of strings, not {text!r}")
    return value


def _human_integer(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text)
    if match is None:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"must be a whole number, not {text!r}") from None
    number, suffix = match.groups()
    if suffix in _SUFFIXES:
        return int(float(number) * _SUFFIXES[suffix])
    if "." in number:
        raise ValueError(f"must be whole before {suffix}; {number}{suffix.lower()} is decimal")
    return int(number) * _BINARY_SUFFIXES[suffix]


READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    bool: _switch,
    float: _seconds,
    dict[str, str]: _names,
    dict[str, Any]: _object,
}
"""By type; whole numbers and choices need more than the text."""
