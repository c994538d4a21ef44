"""What a setting says of itself beside its type and default, as part of its field's annotation.

A field `name: Annotated[type, Setting(...)] = default` is all there is to write: the command line,
the environment, the checks and the documentation are made from it (`gateway/cli`).
"""

from enum import StrEnum

import msgspec


class Group(StrEnum):
    """Headings that settings stand under, in the order they are shown."""

    SERVER = "server"
    MODEL = "model"
    PARSERS = "parsers"
    TEMPLATE = "chat template"
    PROCESSES = "processes and limits"
    ENGINES = "engines behind the front door"


class Setting(msgspec.Struct, frozen=True):
    """Marks a field as a setting that operators may give."""

    group: Group
    help: str
    """Shown by `--help` and in docs/operations.md."""
    flag: str = ""
    """Without dashes in front; empty takes the field's name, without the unit `_s`."""
    metavar: str = ""
    """Stands for the value; empty takes the flag's last word."""
    shown_default: str = ""
    """Where the default itself says too little."""
    least: int | None = None
    most: int | None = None
    """Bounds of a whole number, both included; None for no bound."""
