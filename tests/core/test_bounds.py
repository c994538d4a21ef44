"""Reasons become one sentence; numbers are read as vLLM's models read them."""

import pytest

from core.protocol.bounds import ids_decoder, state_decoder
from core.protocol.errors import BadRequest
from core.protocol.members import decode, refusal


@pytest.mark.parametrize(
    ("reason", "param", "message"),
    [
        (
            "Expected `int`, got `str` - at `$[3]`",
            "m[3]",
            "`m[3]`: expected an integer, got a string.",
        ),
        (
            "Expected `array | null`, got `int`",
            "m",
            "`m`: expected a list or null, got an integer.",
        ),
        ("Object missing required field `a` - at `$.b`", "m.b.a", "`m.b.a` is required."),
        ("Something else", "m", "`m`: something else."),
    ],
)
def test_reasons(reason: str, param: str, message: str) -> None:
    error = refusal(reason, "m")
    assert (error.param, error.message) == (param, message)


@pytest.mark.parametrize("raw", [b"[3.0]", b'["3"]', b"[3]"])
def test_numbers_are_read_leniently(raw: bytes) -> None:
    assert decode(ids_decoder, raw, "m") == [3]


@pytest.mark.parametrize("raw", [b"", b"{", b"[1", b"\xff"])
def test_broken_json(raw: bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        decode(ids_decoder, raw, "m")
    assert refused.value.param == "m"


def test_unknown_members_of_a_state_are_ignored() -> None:
    assert decode(state_decoder, b'{"newer": 1}', "stream_state").prev_tokens == []
