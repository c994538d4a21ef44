"""Render and tokenize against vLLM's own render server: same statuses, same bodies."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from loadtest.servers.reference import start
from tests.e2e.render_cases import CASES, CHAT, COMPLETION, DETOKENIZE, TOKENIZE, Case
from tests.serving import DEMO_MODEL, PARSERS, Service


@pytest.fixture(scope="module")
def reference() -> Iterator[httpx.Client]:
    """A client of the reference server, with the flags of the shared service."""
    flags = ("--served-model-name", "demo", "other", *PARSERS)
    with start(DEMO_MODEL, flags) as (_, url), httpx.Client(base_url=url, timeout=60) as opened:
        yield opened


@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_answers_are_the_reference_servers(
    case: Case, client: httpx.Client, reference: httpx.Client
) -> None:
    ours, theirs = _post(client, case), _post(reference, case)
    assert ours.status_code == theirs.status_code, ours.text
    expected, answer = theirs.json(), ours.json()
    if theirs.status_code == 200:
        assert _without_ids(answer, case) == _without_ids(expected, case)
    elif _violates_schema(expected["error"]):
        _assert_one_sentence(answer["error"], expected["error"])
    else:
        assert answer == expected


def _post(client: httpx.Client, case: Case) -> httpx.Response:
    body = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    return client.post(case.path, content=body, headers={"content-type": "application/json"})


def _without_ids(answer: Any, case: Case) -> Any:
    """The answer without IDs that were drawn."""
    if "request_id" in case.body:
        return answer
    entries = answer if isinstance(answer, list) else [answer]
    return [{key: entry[key] for key in entry if key != "request_id"} for entry in entries]


def _violates_schema(error: dict[str, Any]) -> bool:
    """Whether the reference's pydantic refuses, or one of its validators stumbles."""
    return error["type"] == "Bad Request" or "object is not" in error["message"]


def _assert_one_sentence(error: dict[str, Any], reference: dict[str, Any]) -> None:
    assert error["type"] == "BadRequestError"
    assert error["code"] == 400
    assert "\n" not in error["message"]
    assert len(error["message"]) < 200
    if error["param"]:
        steps = error["param"].replace("[", ".").replace("]", "")
        assert f"body.{steps}" == reference["param"]


def test_a_callers_request_id_becomes_the_engines(client: httpx.Client) -> None:
    headers = {"x-request-id": "mine"}
    chat = client.post(
        CHAT, json={"messages": [{"role": "user", "content": "Hi"}]}, headers=headers
    )
    assert chat.json()["request_id"] == "chatcmpl-mine"
    assert chat.headers["x-request-id"] == "mine"
    both = client.post(COMPLETION, json={"prompt": ["a", "b"]}, headers=headers).json()
    assert [entry["request_id"] for entry in both] == ["cmpl-mine-0", "cmpl-mine-1"]


def test_tokens_come_back_as_text(client: httpx.Client) -> None:
    text = "Zażółć 漢字 👩‍👩‍👧 \t and <|im_start|> in the middle"
    tokens = client.post(TOKENIZE, json={"prompt": text}).json()["tokens"]
    assert client.post(DETOKENIZE, json={"tokens": tokens}).json() == {"prompt": text}


def test_only_posted_json_within_the_limit_is_read(client: httpx.Client) -> None:
    assert client.get(TOKENIZE).status_code == 405
    assert client.post(TOKENIZE, content=b"prompt=x").status_code == 400
    assert client.post(TOKENIZE, json={"prompt": "x" * 4 * 2**20}).status_code == 413


def test_it_is_counted_and_encoded_fast(client: httpx.Client, service: Service) -> None:
    client.post(TOKENIZE, json={"prompt": "x"})
    metrics = client.get("/metrics").text
    assert 'derender_shard_up{shard="render-0"} 1.0' in metrics
    assert 'endpoint="tokenize",mode="render",status="200"' in metrics
    assert "render encodes with fastokens" in service.log
