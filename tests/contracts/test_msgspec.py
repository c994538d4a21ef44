"""The words of msgspec's complaints, which refusals are made of."""

import re

import msgspec
import pytest

from gateway.http.body import _AT_BYTE, _EXPECTED


class _Body(msgspec.Struct):
    n: int
    parts: list[str] = []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"n":"x"}', ("int", "str", "n")),
        (b'{"n":1,"parts":[1]}', ("str", "int", "parts[0]")),
        (b"[]", ("object", "array", None)),
    ],
)
def test_a_wrong_type_is_told_with_its_path(body: bytes, told: tuple[str | None, ...]) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(body, type=_Body)
    match = _EXPECTED.match(str(caught.value))
    assert match is not None
    assert match.groups() == told


def test_what_is_no_json_is_told_with_its_byte() -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(b'{"n":!}')
    match = _AT_BYTE.match(str(caught.value))
    assert match is not None
    assert match[2] == "5"
    assert not isinstance(caught.value, msgspec.ValidationError)
    # `core.render` names the reason alone.
    assert re.match("JSON is malformed: ", str(caught.value))
