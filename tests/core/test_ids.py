"""Derived names are stable, and keep the shape of what they replace."""

import re

import pytest

from core.protocol.ids import rendezvous, stream_id, tool_call_id


def test_a_stream_has_one_identity() -> None:
    assert stream_id("r", 0) == stream_id("r", 0)
    assert len({stream_id("r", 0), stream_id("r", 1), stream_id("r1", 0)}) == 3
    assert re.fullmatch(r"[0-9a-f]{16}", stream_id("r", 0))


@pytest.mark.parametrize(
    ("drawn", "shape"),
    [
        pytest.param(None, r"chatcmpl-tool-[0-9a-f]{16}", id="none"),
        pytest.param("chatcmpl-tool-" + "a" * 32, r"chatcmpl-tool-[0-9a-f]{16}", id="random"),
        pytest.param("Ab3dE5gH9", r"[A-Za-z0-9]{9}", id="mistral"),
        pytest.param("functions.f:0", r"functions\.f:0", id="own scheme"),
    ],
)
def test_call_ids_keep_their_shape(drawn: str | None, shape: str) -> None:
    made = tool_call_id(drawn, "stream", 0)
    assert re.fullmatch(shape, made)
    assert made == tool_call_id(drawn, "stream", 0)


def test_call_ids_differ_by_index_and_stream() -> None:
    made = {tool_call_id(None, stream, at) for stream in ("a", "b") for at in range(3)}
    assert len(made) == 6


def test_few_streams_move_when_a_shard_is_added() -> None:
    keys = [stream_id("r", at) for at in range(1000)]
    moved = [key for key in keys if rendezvous(key, 4) != rendezvous(key, 5)]
    assert all(rendezvous(key, 5) == 4 for key in moved)
    assert 120 < len(moved) < 280
