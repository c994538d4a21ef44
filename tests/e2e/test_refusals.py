"""Bad requests over real HTTP: exact status and param, one sentence, OpenAI's shape."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.core import refusal_table as table
from tests.e2e.bodies import CHAT, COMPLETION, one_shot
from tests.e2e.streams import body, post
from tests.serving import Service

PATHS = {"chat": CHAT, "completion": COMPLETION}
KINDS = {
    400: "BadRequestError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    409: "ConflictError",
    413: "RequestEntityTooLargeError",
}
JSON = "application/json"
BOUNDS = ("32", "100", "maximum of", "max_logprobs", " tokens) plus ")
"""Marks of rows that are written for the bounds of another server."""
ROWS = [row for row in table.TABLE if not any(word in row.message for word in BOUNDS)]


@pytest.fixture(autouse=True, scope="module")
def the_service_still_answers(service: Service) -> Iterator[None]:
    yield
    message = post(service.url, one_shot("</think>Hello."))["choices"][0]["message"]
    assert message["content"] == "Hello."


def check(answer: httpx.Response, status: int, param: str | None, start: str) -> None:
    """The answer is this refusal, in one sentence and OpenAI's shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith(JSON)
    parsed = answer.json()
    assert set(parsed) == {"error"}
    error = parsed["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == (KINDS[status], param)
    assert error["code"] in (status, "unknown_checkpoint")
    assert error["message"].startswith(start), error["message"]
    assert "\n" not in error["message"]
    assert len(error["message"]) < 400
    assert not any(word in error["message"] for word in ("Traceback", "msgspec", "pydantic"))


def test_the_table_is_large() -> None:
    assert len(ROWS) >= 80


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_bad_bodies(client: httpx.Client, row: table.Refusal) -> None:
    answer = client.post(PATHS[row.endpoint], json=row.body)
    start = (
        row.message.rstrip("….") if row.message.endswith(("…", " is required.")) else row.message
    )
    check(answer, 400, row.param, f"`{row.param}`{start}")


class Raw(NamedTuple):
    """A request whose bytes are bad."""

    name: str
    content: bytes
    start: str
    status: int = 400
    param: str | None = None
    kind: str | None = JSON
    path: str = CHAT


GOOD = json.dumps(one_shot("Hi.")).encode()


def with_ids(ids: bytes) -> bytes:
    choice = b'{"index":0,"finish_reason":"stop","token_ids":%b}' % ids
    return b'{"generate_response":{"choices":[%b]},"chat_request":{"messages":[]}}' % choice


IDS_PARAM = "generate_response.choices[0].token_ids"
INVALID = "the body is not valid JSON"
RAWS = (
    Raw("no content type", GOOD, "the Content-Type header is missing", kind=None),
    Raw("plain text", GOOD, "the Content-Type is 'text/plain'", kind="text/plain"),
    Raw("form", GOOD, "the Content-Type is ", kind="application/x-www-form-urlencoded"),
    Raw("JSON lines", GOOD, "the Content-Type is ", kind="application/jsonl"),
    Raw("empty", b"", "the body is empty"),
    Raw("blank", b" \n\t ", "the body is empty"),
    Raw("cut short", GOOD[:-1], INVALID),
    Raw("cut in a string", GOOD[:20], INVALID),
    Raw("single quotes", b"{'stream': true}", INVALID),
    Raw("no quotes", b"{stream: true}", INVALID),
    Raw("trailing comma", b'{"stream": true,}', INVALID),
    Raw("trailing text", GOOD + b"x", INVALID),
    Raw("two bodies", GOOD + GOOD, INVALID),
    Raw("comment", b'{"stream": true /* no */}', INVALID),
    Raw("Python's words", b'{"stream": True}', INVALID),
    Raw("byte order mark", b"\xef\xbb\xbf" + GOOD, INVALID),
    Raw("NUL", b"\0", INVALID),
    Raw("number", b"1", "the body must be an object"),
    Raw("list", b"[]", "the body must be an object"),
    Raw("string", b'"x"', "the body must be an object"),
    Raw("null", b"null", "the body must be an object"),
    Raw("not UTF-8", b'{"model": "\xff"}', "the body is not valid UTF-8 at byte 11"),
    Raw("UTF-16", GOOD.decode().encode("utf-16"), "the body is not valid UTF-8"),
    Raw("surrogate bytes", b'{"model": "\xed\xa0\x80"}', "the body is not valid UTF-8"),
    Raw("lone surrogate", b'{"model": "\\ud800"}', INVALID),
    Raw("deep lists", b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "the body is nested"),
    Raw("deep objects", b'{"x":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001, "the body is nested"),
    Raw("open lists", b"[" * 1000, "the body must be an object"),
    Raw("NaN", with_ids(b"[NaN]"), INVALID),
    Raw("infinity", with_ids(b"[Infinity]"), INVALID),
    Raw("huge exponent", with_ids(b"[1e999]"), "`generate_response", param=None),
    Raw(
        "huge number",
        with_ids(b"[%b]" % (b"9" * 4000)),
        f"`{IDS_PARAM}[0]`",
        param=f"{IDS_PARAM}[0]",
    ),
    Raw("leading zero", with_ids(b"[01]"), INVALID),
    Raw("hex", with_ids(b"[0x1]"), INVALID),
    Raw("plus sign", with_ids(b"[+1]"), INVALID),
    Raw("model number", b'{"model": 5}', "`model` must be a string", param="model"),
    Raw("stream word", b'{"stream": "yes"}', "`stream` must be a boolean", param="stream"),
    Raw("checkpoints", b'{"checkpoints": 1}', "`checkpoints` must be", param="checkpoints"),
    Raw("nothing in it", b"{}", "`generate_response` is required", param="generate_response"),
    Raw(
        "duplicate keys",
        b'{"stream": false, "stream": true}',
        "`generate_chunk` is required when `stream` is true",
        param="generate_chunk",
    ),
    Raw(
        "unknown model",
        b'{"model": "nope"}',
        "The model `nope` does not exist",
        status=404,
        param="model",
    ),
    Raw(
        "no responses",
        b"{}",
        "`generate_responses` is required",
        param="generate_responses",
        path=COMPLETION,
    ),
    Raw("unknown path", GOOD, "", status=404, path="/v1/chat/completions/rederender"),
    Raw("too large", b" " * (5 * 2**20), "the body has 5242880 bytes", status=413),
)


@pytest.mark.parametrize("raw", RAWS, ids=lambda raw: raw.name)
def test_bad_bytes(client: httpx.Client, raw: Raw) -> None:
    headers = {} if raw.kind is None else {"content-type": raw.kind}
    answer = client.post(raw.path, content=raw.content, headers=headers)
    if raw.name == "huge exponent":
        assert answer.status_code == 400
        assert answer.json()["error"]["message"]
        return
    check(answer, raw.status, raw.param, raw.start)


def test_a_body_too_large_in_pieces(client: httpx.Client) -> None:
    pieces = (b" " * 65536 for _ in range(80))
    answer = client.post(CHAT, content=pieces, headers={"content-type": JSON})
    check(answer, 413, None, "the body is longer; at most 4194304 bytes")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", [CHAT, COMPLETION])
def test_wrong_methods(client: httpx.Client, method: str, path: str) -> None:
    answer = client.request(method, path)
    check(answer, 405, None, f"{method} is not allowed here")
    assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"chat_request": None}, "chat_request"),
        ({"prompt_token_ids": None}, "prompt_token_ids"),
        ({"generate_chunk": None}, "generate_chunk"),
        ({"prompt_token_ids": [1] * 40_000}, "prompt_token_ids"),
        ({"prompt_token_ids": [1728]}, "prompt_token_ids[0]"),
        ({"prompt_tokens": True}, "prompt_tokens"),
        ({"stream_state": []}, "stream_state"),
    ],
)
def test_bad_parsed_streams(client: httpx.Client, changes: dict[str, Any], param: str) -> None:
    given = body([1], None, "refused") | changes
    check(client.post(CHAT, json=given), 400, param, f"`{param}")
