"""Events out of bytes, however they are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.protocol.errors import EngineFailed
from gateway.engines.sse import EventReader

BOM = b"\xef\xbb\xbf"


def reference(stream: bytes) -> list[bytes]:
    """The payloads of a whole stream, read line by line as the standard describes."""
    text = stream.removeprefix(BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    payloads: list[bytes] = []
    values: list[bytes] = []
    for line in text.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        if not line:
            if values:
                payloads.append(b"\n".join(values))
            values = []
        elif name == b"data":
            values.append(value[1:] if value[:1] == b" " else value)
    return payloads


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(bounds)]


def fed(pieces: list[bytes], max_bytes: int = 1000) -> list[bytes]:
    reader = EventReader(max_bytes)
    return [payload for piece in pieces for payload in reader.feed(piece)]


line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
lines = st.one_of(
    st.sampled_from([b"data: {}", b'data:{"a":1}', b"data", b"data:", b"data:  x", b": ping"]),
    st.sampled_from([b"event: x", b"id: 1", b"retry: 5", b"datax: 1", b" data: 1", b"", b"", b""]),
    st.binary(max_size=8).filter(lambda line: b"\n" not in line and b"\r" not in line),
)
streams = st.builds(
    lambda head, rows, tail: head + b"".join(row + end for row, end in rows) + tail,
    st.sampled_from([b"", BOM, BOM[:2]]),
    st.lists(st.tuples(lines, line_ends), max_size=20),
    st.sampled_from([b"", b"data: unfinished", b"\n", b"\r"]),
)
plain = st.lists(st.sampled_from([b'data: {"a":1}\n\n', b"data: [DONE]\n\n"])).map(b"".join)
places = st.lists(st.integers(min_value=0, max_value=10_000), max_size=12)


@given(streams | plain | st.binary(max_size=40), places)
def test_any_cut_of_any_stream_gives_its_payloads(stream: bytes, places: list[int]) -> None:
    assert fed(cut(stream, places)) == reference(stream)


@given(streams)
def test_single_bytes_give_the_same(stream: bytes) -> None:
    assert fed([bytes([byte]) for byte in stream]) == reference(stream)


@given(st.lists(st.integers(min_value=0, max_value=30), min_size=1, max_size=6), places)
def test_the_bound_is_one_event_however_it_is_cut(lengths: list[int], places: list[int]) -> None:
    stream = b"".join(b"data: " + b"x" * length + b"\n\n" for length in lengths)
    if max(lengths) + 6 > 26:
        with pytest.raises(EngineFailed, match="more than 26 bytes"):
            fed(cut(stream, places), max_bytes=26)
    else:
        assert fed(cut(stream, places), max_bytes=26) == reference(stream)


def test_an_event_without_end_is_refused() -> None:
    reader = EventReader(max_bytes=1000)
    with pytest.raises(EngineFailed, match="more than 1000 bytes"):
        for _ in range(20):
            assert reader.feed(b"x" * 100) == []


@pytest.mark.parametrize(
    ("stream", "rest"),
    [
        (b"", False),
        (b"data: a\n\n", False),
        (b"data: a\r\n\r", False),
        (b"data: a\n\n\n", False),
        (b"data: a\n", True),
        (b"data: a\n\nd", True),
        (b"data: a\n\n: ping\n", True),
        (BOM[:1], True),
        (BOM, False),
    ],
)
def test_rest_tells_of_an_unfinished_event(stream: bytes, rest: bool) -> None:
    reader = EventReader()
    reader.feed(stream)
    assert reader.rest == rest


def test_events_are_handed_on_as_soon_as_they_end() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\n\ndata: b\n\ndata") == [b"a", b"b"]
    assert reader.feed(b": c\r\n\r") == [b"c"]
    assert reader.feed(b"\ndata: d\n\n") == [b"d"]
