"""The public API of a running service."""

import json
import shutil
import subprocess
from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.e2e.bodies import CHAT, COMPLETION, ENCODER, chunk, completion, one_shot
from tests.serving import Service

TEXT = "<think>A greeting.</think>Hello there."
JSON_HEADERS = {"content-type": "application/json"}


def _validate(client: httpx.Client, name: str, instance: Any) -> None:
    schemas = client.get("/openapi.json").json()["components"]
    schema = {"$ref": f"#/components/schemas/{name}", "components": schemas}
    jsonschema.validate(instance, schema, cls=jsonschema.Draft202012Validator)


def test_one_shot_chat(client: httpx.Client) -> None:
    body = one_shot(TEXT)
    answer = client.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    message = answer.json()["choices"][0]["message"]
    assert message["content"] == "Hello there."
    assert message["reasoning"] == "A greeting."
    assert answer.json()["model"] == "demo"
    _validate(client, "ChatResponse", answer.json())
    _validate(client, "DerenderChatRequest", body)


def test_streamed_chat(client: httpx.Client) -> None:
    ids, state, content, reasoning = ENCODER.token_ids(TEXT), None, "", ""
    for start in range(0, len(ids), 2):
        finish = "stop" if start + 2 >= len(ids) else None
        body = chunk(ids[start : start + 2], state, finish)
        answer = client.post(CHAT, json=body)
        assert answer.status_code == 200, answer.text
        _validate(client, "ChatStreamAnswer", answer.json())
        _validate(client, "DerenderChatStreamRequest", body)
        state = answer.json()["stream_state"]
        delta = answer.json()["chunk"]["choices"][0]["delta"]
        content += delta.get("content") or ""
        reasoning += delta.get("reasoning") or ""
    assert (content, reasoning) == ("Hello there.", "A greeting.")


def test_completion(client: httpx.Client) -> None:
    body = completion("Hello there.")
    answer = client.post(COMPLETION, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["text"] == "Hello there."
    _validate(client, "CompletionResponse", answer.json())
    _validate(client, "DerenderCompletionRequest", body)


@pytest.mark.parametrize("name", ["demo", "other"])
def test_the_model_is_reported_as_named(client: httpx.Client, name: str) -> None:
    assert client.post(CHAT, json=one_shot("Hi.", model=name)).json()["model"] == name


@pytest.mark.parametrize("path", [CHAT, COMPLETION])
@pytest.mark.parametrize(
    ("body", "status", "param", "word"),
    [
        ({"model": "nope"}, 404, "model", "does not exist. Valid aliases: demo, other."),
        ({"stream": True}, 400, "generate_chunk", "`generate_chunk` is required"),
        ({"stream": "yes"}, 400, "stream", "must be a boolean"),
        ([], 400, None, "must be an object"),
    ],
)
def test_refusals(
    client: httpx.Client, path: str, body: Any, status: int, param: str | None, word: str
) -> None:
    answer = client.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, status, param)
    assert word in error["message"]
    _validate(client, "ErrorResponse", answer.json())


def test_a_shards_refusal_comes_through(client: httpx.Client) -> None:
    body = one_shot("Hi.")
    body["generate_response"]["choices"][0]["token_ids"] = [-1]
    answer = client.post(CHAT, json=body)
    assert answer.status_code == 400
    assert "token_ids" in answer.json()["error"]["param"]


def test_the_content_type_must_be_json(client: httpx.Client) -> None:
    answer = client.post(CHAT, content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert "text/plain" in answer.json()["error"]["message"]


def test_request_ids_are_echoed(client: httpx.Client) -> None:
    given = client.post(CHAT, json=one_shot("Hi."), headers={"x-request-id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    drawn = client.post(CHAT, json={}, headers={"x-request-id": "a b"})
    assert len(drawn.headers["x-request-id"]) == 16


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_too_long_is_answered_every_time(client: httpx.Client, chunked: bool) -> None:
    size = 12 * 2**20
    for _ in range(20):
        pieces = (b" " * 65536 for _ in range(size // 65536))
        content = pieces if chunked else b" " * size
        answer = httpx.post(
            f"{client.base_url}{CHAT}".replace("//v1", "/v1"), content=content, headers=JSON_HEADERS
        )
        assert answer.status_code == 413
        assert "at most 4194304 bytes" in answer.json()["error"]["message"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_reads_the_answer_to_a_body_too_long(service: Service) -> None:
    command = ["curl", "-sS", "-H", "Content-Type: application/json", "--data-binary", "@-"]
    for extra in ([], ["-H", "Expect:"], ["-H", "Transfer-Encoding: chunked"]):
        for _ in range(7):
            done = subprocess.run(
                [*command, *extra, service.url + CHAT],
                input=b" " * (12 * 2**20),
                capture_output=True,
                check=True,
            )
            assert json.loads(done.stdout)["error"]["code"] == 413


def test_unknown_paths_and_methods_have_openai_shape(client: httpx.Client) -> None:
    missing = client.get("/nope")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NotFoundError")
    for path, allowed in ((CHAT, "POST"), ("/health", "GET")):
        wrong = client.delete(path)
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, 405)
        assert allowed in wrong.headers["allow"]
        assert allowed in client.options(path).headers["allow"]


def test_models(client: httpx.Client) -> None:
    answer = client.get("/v1/models").json()
    assert [card["id"] for card in answer["data"]] == ["demo", "other"]
    assert answer["data"][0]["owned_by"] == "vllm"
    assert answer["data"][0]["max_model_len"] > 0
    _validate(client, "ModelList", answer)
    assert client.get("/v1/models/other").json()["id"] == "other"
    assert client.get("/v1/models/nope").status_code == 404


def test_operations(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.head("/health").status_code == 200
    assert client.get("/ping").status_code == client.post("/ping").status_code == 200
    assert client.get("/version").json()["version"].startswith("0.33.")
    assert "<h1>derender-gateway" in client.get("/docs").text


def _metrics(client: httpx.Client) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_metrics_move(client: httpx.Client) -> None:
    before = _metrics(client)
    client.post(CHAT, json=one_shot("Hi."))
    client.post(CHAT, json={"model": "nope"})
    after = _metrics(client)
    for name, times in {
        'derender_requests_total{endpoint="chat",mode="one_shot",status="200"}': 1,
        'derender_requests_total{endpoint="chat",mode="one_shot",status="404"}': 1,
        'derender_refusals_total{reason="unknown_model"}': 1,
        'derender_request_duration_seconds_count{endpoint="chat",mode="one_shot"}': 2,
    }.items():
        assert after[name] == before.get(name, 0) + times, name
    assert after['derender_shard_calls_in_flight{shard="0"}'] == 0
