"""Laws that hold for every flag, whatever it is, and what a field becomes."""

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.protocol.options import ModelOptions
from core.protocol.settings import Group, Setting
from gateway.cli.flags import FLAGS, Flag, build, flags_of
from gateway.cli.main import read
from gateway.cli.resolving import merge
from gateway.cli.settings import ServeSettings, SettingsError
from gateway.services.settings import HttpSettings
from shards.messages.logs import LogSettings
from shards.messages.orders import TableLimits
from shards.service.supervisor import ShardCounts

ENGINE = "http://engine:8200"
NEEDED = {"DERENDER_MODEL": "m", "DERENDER_ENGINE_URL": ENGINE}
"""With an engine, its flags have somewhere to go."""
WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
NAMES = WORDS.filter(lambda word: "," not in word)
LAW = settings(max_examples=15, deadline=None, derandomize=True)
EVERY_FLAG = pytest.mark.parametrize("flag", FLAGS, ids=[flag.name for flag in FLAGS])
BOUNDED = [flag for flag in FLAGS if flag.setting.least is not None]


def _texts(flag: Flag) -> st.SearchStrategy[list[str]]:
    """Texts that mean something to a flag; one, where it does not take several."""
    if flag.key == "engine_url":
        urls = st.from_regex(r"https?://[a-z]{1,8}(:[1-9][0-9]{3})?(/[a-z]{1,4})?", fullmatch=True)
        return st.lists(urls, min_size=1, unique=True)
    if flag.is_many:
        return st.lists(NAMES, min_size=1)
    return _one_text(flag).map(lambda text: [text])


def _one_text(flag: Flag) -> st.SearchStrategy[str]:
    if flag.choices:
        return st.sampled_from(flag.choices)
    objects: dict[Any, st.SearchStrategy[str]] = {
        str: WORDS.filter(lambda word: not word.startswith("-")),
        bool: st.sampled_from(["true", "false"]),
        int: st.integers(flag.setting.least, flag.setting.most or 10**9).map(str),
        float: st.floats(0.001, 1e6).map(str),
        dict[str, str]: st.dictionaries(WORDS, WORDS).map(json.dumps),
        dict[str, Any]: st.dictionaries(WORDS, st.integers() | st.booleans()).map(json.dumps),
    }
    return objects[flag.type]


def _argv(flag: Flag, texts: list[str]) -> list[str]:
    if flag.is_positional:
        return ["serve", *texts]
    if flag.is_switch:
        texts = [f"--{flag.name}" if texts == ["true"] else f"--no-{flag.name}"]
    else:
        texts = [f"--{flag.name}={text}" for text in texts]
    return ["serve", "m", *texts]


def _by_flag(flag: Flag, texts: list[str], environment: dict[str, str]) -> ServeSettings:
    return merge(read(_argv(flag, texts)), NEEDED | environment)


def _by_variable(flag: Flag, texts: list[str]) -> ServeSettings:
    return merge({}, NEEDED | {flag.variable: ", ".join(texts)})


def _value(flag: Flag, texts: list[str]) -> object:
    return texts if flag.is_many else flag.read(*texts)


@EVERY_FLAG
@LAW
@given(data=st.data())
def test_a_flag_says_what_its_variable_says(flag: Flag, data: st.DataObject) -> None:
    texts = data.draw(_texts(flag))
    assert _by_flag(flag, texts, {}) == _by_variable(flag, texts)


@EVERY_FLAG
@LAW
@given(data=st.data())
def test_a_flag_wins_over_its_variable(flag: Flag, data: st.DataObject) -> None:
    texts, others = data.draw(_texts(flag)), data.draw(_texts(flag))
    settings = _by_flag(flag, texts, {flag.variable: ", ".join(others)})
    assert settings == _by_flag(flag, texts, {})


@EVERY_FLAG
@LAW
@given(data=st.data())
def test_another_value_makes_other_settings(flag: Flag, data: st.DataObject) -> None:
    first, second = data.draw(_texts(flag)), data.draw(_texts(flag))
    same = _value(flag, first) == _value(flag, second)
    assert (_by_variable(flag, first) == _by_variable(flag, second)) is same


def test_what_is_not_told_is_what_the_fields_say() -> None:
    assert merge({"model": "m"}, {}) == ServeSettings(
        counts=ShardCounts(),
        model=ModelOptions(model="m"),
        http=HttpSettings(),
        table=TableLimits(),
        logs=LogSettings(),
    )


@EVERY_FLAG
def test_a_default_is_a_value_that_could_be_told(flag: Flag) -> None:
    if flag.default not in (None, ()):
        assert flag.read(str(flag.default)) == flag.default


def test_names_are_not_given_twice() -> None:
    assert len({flag.variable for flag in FLAGS}) == len(FLAGS)


@pytest.mark.parametrize("flag", BOUNDED, ids=[flag.name for flag in BOUNDED])
def test_bounds_are_kept_on_both_sides(flag: Flag) -> None:
    for inside, outside in ((flag.setting.least, -1), (flag.setting.most, 1)):
        if inside is None or (flag.optional and inside + outside == -1):
            continue
        assert flag.read(str(inside)) == inside
        with pytest.raises(ValueError, match=f"not {inside + outside}$"):
            flag.read(str(inside + outside))


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    """A struct that may be left out."""

    places: Annotated[tuple[str, ...], Setting(Group.ENGINES, "places", flag="place")]
    speed: Annotated[Literal["slow", "fast"], Setting(Group.ENGINES, "how fast")] = "slow"


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    """One field of each kind."""

    subject: Annotated[str, Setting(Group.MODEL, "what it is about")]
    quiet: Annotated[bool, Setting(Group.SERVER, "say less")] = True
    rest_time_s: Annotated[float, Setting(Group.SERVER, "pause")] = 1.5
    length: Annotated[int | None, Setting(Group.SERVER, "length", shown_default="any")] = None
    inner: Inner | None = None
    not_a_setting: int = 3


def test_a_field_becomes_a_flag() -> None:
    flags = list(flags_of(Outer))
    assert [(flag.name, flag.metavar, flag.shown_default) for flag in flags] == [
        ("subject", "SUBJECT", ""),
        ("quiet", "QUIET", ""),
        ("rest-time", "SECONDS", "1.5"),
        ("length", "LENGTH", "any"),
        ("place", "PLACE", ""),
        ("speed", "{slow,fast}", "slow"),
    ]
    kinds = [(flag.is_positional, flag.is_switch, flag.is_many) for flag in flags]
    assert kinds == [
        (True, False, False),
        (False, True, False),
        *[(False, False, False)] * 2,
        (False, False, True),
        (False, False, False),
    ]
    assert flags[2].variable == "DERENDER_REST_TIME"


def test_values_become_structs() -> None:
    assert build(Outer, {"subject": "a", "speed": "fast"}) == Outer(subject="a")
    told = {"subject": "a", "rest_time": 2.0, "place": ("b",), "speed": "fast"}
    inner = Inner(places=("b",), speed="fast")
    assert build(Outer, told) == Outer(subject="a", rest_time_s=2.0, inner=inner)


def test_a_structs_own_check_names_its_first_flag() -> None:
    with pytest.raises(SettingsError, match=r"^--engine-url: the engine API key must"):
        merge({"model": "m", "engine_url": [ENGINE], "engine_api_key": "\n"}, {})
