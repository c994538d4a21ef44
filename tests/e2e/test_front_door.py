"""The front door over HTTP: its headers, its ends, and what it asks of the engine."""

import json
from typing import Any

import httpx
import pytest

from tests.front import EngineProcess
from tests.serving import Service

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "What is 2+2?"}]
Json = Any


@pytest.fixture(scope="module")
def http(front: Service) -> Any:
    with httpx.Client(base_url=front.url, timeout=30) as opened:
        yield opened


def chat(**members: Any) -> Json:
    return {"model": "demo", "messages": MESSAGES, "max_tokens": 64} | members


def events(text: str) -> list[Json]:
    """Payloads of the events of a stream, the last one `[DONE]`."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_a_stream_has_the_headers_that_keep_it_flowing(http: httpx.Client) -> None:
    answer = http.post(CHAT, json=chat(stream=True), headers={"x-request-id": "flow-1"})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["x-request-id"] == "flow-1"
    assert "content-encoding" not in answer.headers
    found = events(answer.text)
    assert found[-1] == "[DONE]"
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {chunk["id"] for chunk in found[:-1]} == {"chatcmpl-flow-1"}


def test_what_the_engine_is_asked(http: httpx.Client, engine: EngineProcess) -> None:
    headers = {
        "x-request-id": "asked-1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
    }
    http.post(CHAT, json=chat(max_tokens=16, stop=["never"], min_tokens=2), headers=headers)
    asked = engine.request("asked-1")
    for name in ("traceparent", "tracestate"):
        assert asked["headers"][name] == headers[name]
    assert "authorization" not in asked["headers"]
    sampling = asked["body"]["sampling_params"]
    # 16 is vLLM's own default: render leaves it out, and the engine would not stop.
    assert (sampling["max_tokens"], sampling["min_tokens"]) == (16, 2)
    assert "stop" not in sampling
    assert asked["body"]["stream"] is True


def test_the_body_may_name_the_request(http: httpx.Client, engine: EngineProcess) -> None:
    answer = http.post(CHAT, json=chat(request_id="mine"))
    assert answer.json()["id"] == "chatcmpl-mine"
    assert answer.headers["x-request-id"] == "mine"
    assert engine.request("chatcmpl-mine")["outcome"] == "finished"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129])
def test_a_name_that_cannot_be_a_header_is_replaced(http: httpx.Client, given: str) -> None:
    answer = http.post(CHAT, json=chat(max_tokens=2), headers={"x-request-id": given})
    assert answer.status_code == 200
    assert answer.headers["x-request-id"].isalnum()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_other_methods_are_refused(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "OPTIONS, POST")
    assert answer.json()["error"]["type"] == "MethodNotAllowedError"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000])
def test_what_is_no_request_is_refused(http: httpx.Client, path: str, body: bytes) -> None:
    answer = http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "BadRequestError"


def test_a_body_must_say_it_is_json(http: httpx.Client) -> None:
    assert http.post(CHAT, content=b"{}").status_code == 400


def test_every_served_name_is_taken(http: httpx.Client, engine: EngineProcess) -> None:
    for name in ("demo", "other"):
        headers = {"x-request-id": f"named-{name}"}
        answer = http.post(CHAT, json=chat(model=name, max_tokens=2), headers=headers).json()
        # As in vLLM, the first one is reported; and the engine knows its model by one name.
        assert answer["model"] == "demo"
        assert engine.request(f"named-{name}")["body"]["model"] == "demo"
