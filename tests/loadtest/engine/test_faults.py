import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from loadtest.engine.faults import INSTEAD, Kind
from loadtest.engine.settings import ScriptedSettings
from tests.loadtest.engine.engine_client import (
    GENERATE,
    body,
    client_of,
    generate,
    open_call,
    outcomes,
    serve_engine,
    stream,
    wait_for_outcome,
    wait_for_stats,
)

TOKENS = 5
DONE = b"data: [DONE]\n\n"
SLOW = ScriptedSettings(tokens_per_second=0.01)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serve_engine(ScriptedSettings()) as (_, port):
        yield port


@pytest.fixture
def client(port: int) -> Iterator[httpx.Client]:
    with client_of(port) as client:
        client.delete("/requests")
        yield client


def arm(client: httpx.Client, kind: str, **members: int) -> None:
    response = client.post("/faults", json={"kind": kind, **members})
    assert response.status_code == 200, response.text


def short_body(streamed: bool) -> dict[str, Any]:
    params = {"max_tokens": TOKENS}
    return body(request_id="r1", stream=streamed, sampling_params=params)


def read_to_end(sock: socket.socket) -> tuple[bytes, bool]:
    """Everything that comes, and whether a reset ends it."""
    parts = []
    with sock:
        try:
            while part := sock.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            return b"".join(parts), True
    return b"".join(parts), False


def exchange(port: int, streamed: bool) -> tuple[bytes, bytes, bool]:
    """Head and body of an answer, and whether the body has its proper end.

    The body must be sent in chunks.
    """
    data, was_reset = read_to_end(open_call(port, short_body(streamed)))
    assert not was_reset
    head, _, rest = data.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    content = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        assert rest[length : length + 2] == b"\r\n"
        content, rest = content + rest[:length], rest[length + 2 :]
        if not length:
            assert not rest
            return head, content, True
    return head, content, False


def event_bytes(port: int) -> list[bytes]:
    """The events of the stream without a fault."""
    _, content, ended = exchange(port, streamed=True)
    assert ended
    events = content.split(b"\n\n")
    assert events.pop() == b""
    return [event + b"\n\n" for event in events]


def without_time(answer: bytes) -> bytes:
    """A JSON body up to its first member that differs from run to run."""
    return answer.partition(b'"created"')[0]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("status", [503, 429, 500, 529])
def test_refuse(client: httpx.Client, streamed: bool, status: int) -> None:
    arm(client, "refuse", status=status)
    response = client.post(GENERATE, json=short_body(streamed))
    assert response.status_code == status
    assert response.json()["error"]["code"] == status
    assert response.headers.get("retry-after") == ("1" if status in (503, 429) else None)
    assert outcomes(client) == ["failed"]


def test_error_types_are_named_as_an_engine_names_them(client: httpx.Client) -> None:
    names = {503: "ServiceUnavailableError", 500: "InternalServerError", 529: "EngineError"}
    for status, name in names.items():
        arm(client, "refuse", status=status)
        error = client.post(GENERATE, json=short_body(False)).json()["error"]
        assert error["type"] == name


@pytest.mark.parametrize("streamed", [True, False])
def test_reset(client: httpx.Client, port: int, streamed: bool) -> None:
    arm(client, "reset")
    assert read_to_end(open_call(port, short_body(streamed))) == (b"", True)
    wait_for_outcome(client, "failed")


@pytest.mark.parametrize("streamed", [True, False])
def test_silent(client: httpx.Client, port: int, streamed: bool) -> None:
    arm(client, "silent")
    call = open_call(port, short_body(streamed))
    wait_for_outcome(client, "running")
    wait_for_stats(client, in_flight=1)
    call.setblocking(False)
    with pytest.raises(BlockingIOError):
        call.recv(1)
    call.close()
    wait_for_outcome(client, "aborted")
    wait_for_stats(client, in_flight=0)


@pytest.mark.parametrize("streamed", [True, False])
def test_nonsense(client: httpx.Client, streamed: bool) -> None:
    arm(client, "nonsense")
    response = client.post(GENERATE, json=short_body(streamed))
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.text.startswith("<!doctype html>")
    assert outcomes(client) == ["failed"]


@pytest.mark.parametrize("after", [0, 1, 3, TOKENS, TOKENS + 1, 100])
def test_die(client: httpx.Client, port: int, after: int) -> None:
    events = event_bytes(port)
    arm(client, "die", after=after)
    _, content, ended = exchange(port, streamed=True)
    assert (content, ended) == (b"".join(events[:after]), False)
    wait_for_outcome(client, "failed")


@pytest.mark.parametrize("after", [0, 2, TOKENS])
def test_half(client: httpx.Client, port: int, after: int) -> None:
    events = event_bytes(port)
    arm(client, "half", after=after)
    _, content, ended = exchange(port, streamed=True)
    half = events[after][: len(events[after]) // 2]
    assert (content, ended) == (b"".join(events[:after]) + half, False)


@pytest.mark.parametrize("after", [0, 2])
def test_short(client: httpx.Client, port: int, after: int) -> None:
    events = event_bytes(port)
    arm(client, "short", after=after)
    _, content, ended = exchange(port, streamed=True)
    assert (content, ended) == (b"".join(events[:after]), True)
    assert outcomes(client)[-1] == "failed"


@pytest.mark.parametrize("after", [0, 2])
def test_stall(port: int, client: httpx.Client, after: int) -> None:
    arm(client, "stall", after=after)
    with client.stream("POST", GENERATE, json=short_body(True)) as response:
        lines = (line for line in response.iter_lines() if line)
        assert [next(lines)[:6] for _ in range(after)] == ["data: "] * after
        with client_of(port) as other:
            wait_for_stats(other, in_flight=1)
            assert outcomes(other) == ["running"]
    wait_for_outcome(client, "aborted")


def test_garbage(client: httpx.Client, port: int) -> None:
    events = event_bytes(port)
    arm(client, "garbage", after=2)
    _, content, ended = exchange(port, streamed=True)
    broken = b'data: {"choices": [{"index": 0, "token_ids": "x"\n\n'
    assert (content, ended) == (b"".join([*events[:2], broken, *events[2:]]), True)


def test_error(client: httpx.Client, port: int) -> None:
    events = event_bytes(port)
    arm(client, "error", after=2)
    _, content, ended = exchange(port, streamed=True)
    *sent, error, done = content.split(b"\n\n")[:-1]
    assert [event + b"\n\n" for event in sent] == events[:2]
    details = json.loads(error.removeprefix(b"data: "))["error"]
    assert (details["code"], details["type"]) == (500, "InternalServerError")
    assert (done, ended) == (DONE.strip(), True)
    assert outcomes(client)[-1] == "failed"


def test_burst_is_one_chunk(client: httpx.Client, port: int) -> None:
    events = event_bytes(port)
    arm(client, "burst")
    data, _ = read_to_end(open_call(port, short_body(True)))
    whole = b"".join(events)
    assert data.endswith(b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(whole), whole))
    assert outcomes(client)[-1] == "finished"


def test_pieces_are_seven_bytes(client: httpx.Client, port: int) -> None:
    whole = b"".join(event_bytes(port))
    arm(client, "pieces")
    data, _ = read_to_end(open_call(port, short_body(True)))
    pieces = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    assert data.endswith(b"\r\n\r\n" + chunks + b"0\r\n\r\n")


def test_crlf(client: httpx.Client, port: int) -> None:
    events = event_bytes(port)
    arm(client, "crlf")
    _, content, ended = exchange(port, streamed=True)
    expected = [
        b": ping\r\ndata:" + event.removeprefix(b"data: ").strip() + b"\r\n\r\n" for event in events
    ]
    assert (content, ended) == (b"".join(expected), True)


@pytest.mark.parametrize(("kind", "proper"), [("die", False), ("half", False), ("short", True)])
def test_half_of_a_json_body(client: httpx.Client, port: int, kind: str, proper: bool) -> None:
    whole = client.post(GENERATE, json=short_body(False)).content
    arm(client, kind)
    _, content, ended = exchange(port, streamed=False)
    assert (len(content), ended) == (len(whole) // 2, proper)
    assert content.startswith(without_time(whole))
    wait_for_outcome(client, "failed")


def test_stalled_json_body(client: httpx.Client, port: int) -> None:
    arm(client, "stall")
    with client.stream("POST", GENERATE, json=short_body(False)) as response:
        assert next(response.iter_raw()).startswith(b'{"request_id":')
    wait_for_outcome(client, "aborted")


@pytest.mark.parametrize("kind", ["pieces", "burst", "crlf"])
def test_json_bodies_stay_whole(client: httpx.Client, kind: str) -> None:
    whole = generate(client, short_body(False))
    arm(client, kind)
    assert generate(client, short_body(False))["choices"] == whole["choices"]
    assert outcomes(client) == ["finished"] * 2


def test_garbage_has_no_choices(client: httpx.Client) -> None:
    arm(client, "garbage")
    assert "choices" not in generate(client, short_body(False))


def test_error_is_a_status(client: httpx.Client) -> None:
    arm(client, "error")
    response = client.post(GENERATE, json=short_body(False))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (500, 500)
    assert error["type"] == "InternalServerError"


def test_count_and_disarming(client: httpx.Client) -> None:
    arm(client, "refuse", count=2)
    statuses = [client.post(GENERATE, json=short_body(False)).status_code for _ in range(3)]
    assert statuses == [503, 503, 200]
    arm(client, "refuse", count=9)
    arm(client, "refuse", count=0)
    assert generate(client, short_body(False))
    assert stream(client, short_body(True))


@pytest.mark.parametrize(
    ("order", "param"),
    [
        ({}, "body.kind"),
        ({"kind": "none"}, "body.kind"),
        ({"kind": "die", "after": -1}, "body.after"),
        ({"kind": "die", "count": -1}, "body.count"),
        ({"kind": "refuse", "status": 200}, "body.status"),
        ({"kind": "die", "when": 1}, None),
    ],
)
def test_orders_that_mean_nothing(
    client: httpx.Client, order: dict[str, Any], param: str | None
) -> None:
    response = client.post("/faults", json=order)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert generate(client, short_body(False))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in INSTEAD])
def test_abort_is_noticed_whatever_the_fault(kind: Kind) -> None:
    with serve_engine(SLOW) as (_, port), client_of(port) as client:
        arm(client, kind, after=3)
        call = open_call(port, body(stream=True))
        wait_for_stats(client, in_flight=1)
        call.close()
        wait_for_outcome(client, "aborted")
        wait_for_stats(client, started=1, aborted=1, in_flight=0)


def test_every_kind_leaves_the_engine_whole(
    port: int, client: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    for kind in Kind:
        for streamed in (True, False):
            arm(client, kind, after=1)
            call = open_call(port, short_body(streamed))
            if kind in (Kind.SILENT, Kind.STALL):
                wait_for_stats(client, in_flight=1)
                call.close()
            else:
                read_to_end(call)
            wait_for_stats(client, in_flight=0)
            assert stream(client, short_body(True))
    assert capfd.readouterr().err == ""
