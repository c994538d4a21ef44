"""The OpenAPI document and the page made of it."""

import re
from typing import Any

import pytest

from gateway.docs import openapi
from gateway.docs.page import render
from gateway.routes.table import ROUTES


def document() -> dict[str, Any]:
    return openapi.document(ROUTES)


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [name for member in value.values() for name in _references(member)]
    if isinstance(value, list):
        return [name for member in value for name in _references(member)]
    return []


def test_every_reference_resolves() -> None:
    whole = document()
    references = _references(whole)
    assert references
    for reference in references:
        name = reference.removeprefix("#/components/schemas/")
        assert name in whole["components"]["schemas"]


def test_operations_are_complete() -> None:
    whole = document()
    assert whole["openapi"].startswith("3.1")
    names = [entry["operationId"] for path in whole["paths"].values() for entry in path.values()]
    assert len(names) == len(set(names))
    for path in ("/v1/chat/completions/derender", "/v1/completions/derender"):
        entry = whole["paths"][path]["post"]
        assert len(entry["requestBody"]["content"]["application/json"]["schema"]["anyOf"]) == 2
        assert len(entry["responses"]["200"]["content"]["application/json"]["schema"]["anyOf"]) == 2
        assert set(entry["responses"]) == {"200", "400", "401", "404", "413", "500", "503"}


@pytest.mark.parametrize(
    ("path", "request_name", "event"),
    [
        ("/v1/chat/completions", "ChatCompletionRequest", "ChatChunk"),
        ("/v1/completions", "TextCompletionRequest", "CompletionChunk"),
    ],
)
def test_the_front_door_answers_in_one_piece_or_by_events(
    path: str, request_name: str, event: str
) -> None:
    whole = document()
    entry = whole["paths"][path]["post"]
    assert "--engine-url" in entry["description"]
    body = entry["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": f"#/components/schemas/{request_name}"}
    content = entry["responses"]["200"]["content"]
    assert set(content) == {"application/json", "text/event-stream"}
    events = content["text/event-stream"]["schema"]
    assert events == {"$ref": f"#/components/schemas/{event}"}
    assert set(entry["responses"]) >= {"400", "404", "429", "502", "503", "504"}
    assert f'href="#{event}"' in render(whole)


def test_members_are_described() -> None:
    schemas = document()["components"]["schemas"]
    request = schemas["DerenderChatStreamRequest"]
    assert set(request["required"]) == {"stream", "generate_chunk"}
    assert request["properties"]["stream"] == {"enum": [True]}
    state = schemas["StreamState"]
    assert "required" not in state
    assert state["properties"]["checkpoint"]["anyOf"][1] == {"type": "null"}


def test_the_page_needs_no_network() -> None:
    page = render(document())
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)
    assert "/v1/chat/completions/derender" in page
    for name in re.findall(r'href="#(\w+)"', page):
        assert f'id="{name}"' in page
