"""The flags of `derender serve`, made from the annotated fields of its settings."""

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from core.protocol.settings import Group, Setting
from gateway.cli.reading import READERS, one_of, whole_number
from gateway.cli.settings import ServeSettings, SettingsError

ENVIRONMENT_PREFIX = "DERENDER_"

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: `--name` on the command line, `DERENDER_NAME` in the environment."""

    name: str
    """Without dashes in front."""
    setting: Setting
    type: Any
    """The field's, without its annotation and without None."""
    optional: bool = False
    """Whether it may be None."""
    default: Any = None
    """The field's, None where it is required or made anew."""
    required: bool = False

    @property
    def key(self) -> str:
        """Name as a Python identifier."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return ENVIRONMENT_PREFIX + self.key.upper()

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return self.type is bool

    @property
    def is_many(self) -> bool:
        """Whether it takes several; in the environment, commas or blanks stand between them."""
        return get_origin(self.type) is tuple

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values there are; empty where there is no such list."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_positional(self) -> bool:
        """Whether the command line takes it without its name: what there is no service without."""
        return self.required and not self.is_many

    @property
    def metavar(self) -> str:
        """What stands for the value in the help."""
        if self.choices:
            return "{" + ",".join(self.choices) + "}"
        unit = "SECONDS" if self.type is float else self.name.rsplit("-", 1)[-1].upper()
        return self.setting.metavar or unit

    @property
    def shown_default(self) -> str:
        """The default as the help tells it; empty where there is none."""
        default = "" if self.default in (None, ()) or self.is_switch else str(self.default)
        return self.setting.shown_default or default

    def read(self, text: str) -> Any:
        """Turn the text of one value into the value.

        Raises:
            ValueError: It cannot be used; the message is the reason.
        """
        if self.choices:
            return one_of(self.choices, text)
        if self.type is not int:
            return READERS[self.type](text)
        if self.optional and text.strip().lower() in ("auto", "-1"):
            return None
        return whole_number(self.setting.least, self.setting.most, text)


def flags_of(struct: type[msgspec.Struct]) -> Iterator[Flag]:
    """Make the flags of a struct's settings and, in their place, of the structs in it."""
    for field in msgspec.structs.fields(struct):
        if inner := _struct_in(field):
            yield from flags_of(inner)
        elif flag := _flag(field):
            yield flag


def build(struct: type[_Struct], values: Mapping[str, Any]) -> _Struct:
    """Make a struct of settings from their values by flag key; the others take their defaults.

    A struct that may be None is None where a required setting in it has no value.

    Raises:
        SettingsError: A struct's own check failed; the message begins with its first flag.
    """
    members: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if inner := _struct_in(field):
            if field.required or _is_told(inner, values):
                members[field.name] = build(inner, values)
        elif (flag := _flag(field)) and flag.key in values:
            members[field.name] = values[flag.key]
    try:
        return struct(**members)
    except ValueError as error:
        raise SettingsError(f"--{next(flags_of(struct)).name}: {error}") from None


def in_groups(flags: tuple[Flag, ...]) -> Iterator[tuple[Group, list[Flag]]]:
    """Yield the flags under their headings, as the command line and the documentation show them."""
    for group in Group:
        yield group, [flag for flag in flags if flag.setting.group is group]


def _flag(field: FieldInfo) -> Flag | None:
    notes = get_args(field.type)
    setting = next((note for note in notes if isinstance(note, Setting)), None)
    if setting is None:
        return None
    kinds = get_args(notes[0]) if NoneType in get_args(notes[0]) else (notes[0],)
    return Flag(
        name=setting.flag or field.name.removesuffix("_s").replace("_", "-"),
        setting=setting,
        type=kinds[0],
        optional=NoneType in kinds,
        default=None if field.default is msgspec.NODEFAULT else field.default,
        required=field.required,
    )


def _struct_in(field: FieldInfo) -> type[msgspec.Struct] | None:
    kinds = (field.type, *get_args(field.type))
    structs = (
        each for each in kinds if isinstance(each, type) and issubclass(each, msgspec.Struct)
    )
    return next(structs, None)


def _is_told(struct: type[msgspec.Struct], values: Mapping[str, Any]) -> bool:
    return all(values.get(flag.key) for flag in flags_of(struct) if flag.required)


FLAGS = tuple(flags_of(ServeSettings))
