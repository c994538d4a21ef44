"""Reading and opening bodies, without a server."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from core.protocol.errors import BadRequest, BodyTooLarge
from gateway.http.body import ClientGone, check_content_type, open_envelope, read


def _receive(*chunks: bytes, gone: bool = False) -> Callable[[], Awaitable[Any]]:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
    ]
    if gone:
        messages.append({"type": "http.disconnect"})
    else:
        messages[-1]["more_body"] = False

    async def receive() -> Any:
        return messages.pop(0)

    return receive


@pytest.mark.parametrize("chunks", [[b"abc"], [b"a", b"bc"], [b"", b"abc", b""]])
def test_chunks_are_joined(chunks: Sequence[bytes]) -> None:
    assert asyncio.run(read({}, _receive(*chunks), 3)) == b"abc"


@pytest.mark.parametrize("chunks", [[b"abcd"], [b"ab", b"cd"], [b"abc", b"d", b"efgh"]])
def test_the_limit_counts_bytes_read(chunks: Sequence[bytes]) -> None:
    with pytest.raises(BodyTooLarge, match="at most 3 bytes"):
        asyncio.run(read({}, _receive(*chunks), 3))


def test_a_declared_length_is_refused_unread() -> None:
    async def never() -> Any:
        raise AssertionError("read anyway")

    with pytest.raises(BodyTooLarge, match="has 4 bytes"):
        asyncio.run(read({b"content-length": b"4"}, never, 3))


@pytest.mark.parametrize("chunks", [[], [b"a"]])
def test_a_caller_who_leaves_is_not_answered(chunks: Sequence[bytes]) -> None:
    with pytest.raises(ClientGone):
        asyncio.run(read({}, _receive(*chunks, gone=True), 3))


@pytest.mark.parametrize(
    "declared",
    [b"application/json", b"application/json; charset=utf-8", b"Application/JSON ;x=1"],
)
def test_json_is_accepted_and_its_compressed_form_is_not(declared: bytes) -> None:
    check_content_type({b"content-type": declared})
    with pytest.raises(BadRequest, match="Content-Encoding"):
        check_content_type({b"content-type": declared, b"content-encoding": b"gzip"})


@pytest.mark.parametrize("declared", [None, b"", b"text/plain", b"application/jsonp", b"\xff"])
def test_other_kinds_are_refused(declared: bytes | None) -> None:
    headers = {} if declared is None else {b"content-type": declared}
    with pytest.raises(BadRequest, match="application/json"):
        check_content_type(headers)


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b"", "empty", None),
        (b"  ", "empty", None),
        (b"{not json", "not valid JSON: .* at byte 1", None),
        (b'{"a":1} x', "not valid JSON: trailing characters at byte 9", None),
        (b'{"a":', "not valid JSON: it ends too early at byte 5", None),
        (b'{"model":"\\ud800"}', "not valid JSON: a value is cut short before byte 18", None),
        (b"\xef\xbb\xbf{}", "at byte 0", None),
        (b'{"x":"\xff"}', "not valid UTF-8 at byte 6", None),
        (b"[1]", "must be an object, not an array", None),
        (b"3", "must be an object, not an integer", None),
        (b'{"stream":1}', "`stream` must be a boolean, not an integer", "stream"),
        (b'{"model":[]}', "`model` must be a string or null, not an array", "model"),
        (b'{"generate_response":' + b"[" * 100_000, "nested too deeply", None),
    ],
)
def test_refusals(body: bytes, message: str, param: str | None) -> None:
    with pytest.raises(BadRequest, match=message) as caught:
        open_envelope(body)
    assert caught.value.param == param
    assert "\n" not in caught.value.message


def test_an_envelope_keeps_its_members_raw() -> None:
    envelope = open_envelope(
        b'{"stream": true, "generate_chunk": {"a": [1, 2]}, "zzz": "\xc3\xa9"}'
    )
    assert envelope.stream
    assert bytes(envelope.generate_chunk) == b'{"a": [1, 2]}'
