"""The OpenAPI document, built from the same structs that read bodies and write answers."""

from collections.abc import Sequence
from typing import Any

from gateway import __version__
from gateway.docs.schemas import Components
from gateway.http.errors import ErrorResponse
from gateway.http.route import Route

Document = dict[str, Any]


def document(routes: Sequence[Route]) -> Document:
    """Build the whole document; once per process is enough."""
    components = Components()
    paths: Document = {}
    for row in routes:
        if row.documented:
            path = row.path.replace(":path}", "}")
            method = row.methods[0].lower()
            paths.setdefault(path, {})[method] = _operation(path, method, row, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "derender-gateway",
            "version": __version__,
            "description": "Requests into tokens for a token-in / token-out engine, and its tokens"
            " into OpenAI responses.",
        },
        "paths": paths,
        "components": {"schemas": components.schemas},
    }


def _operation(path: str, method: str, row: Route, components: Components) -> Document:
    words = [word.strip("{}") for word in path.split("/") if word]
    entry: Document = {
        "operationId": "_".join([method, *words]),
        "summary": row.summary,
        "responses": _responses(row, components),
    }
    if row.description:
        entry["description"] = row.description
    if row.requests:
        entry["requestBody"] = {"required": True, "content": _content(row.requests, components)}
    if "{model_id}" in path:
        parameter = {"name": "model_id", "in": "path", "required": True}
        entry["parameters"] = [{**parameter, "schema": {"type": "string"}}]
    return entry


def _responses(row: Route, components: Components) -> Document:
    answered: Document = {"description": "Done."}
    if row.answers:
        answered["content"] = _content(row.answers, components)
    if row.events is not None:
        answered["content"]["text/event-stream"] = {"schema": components.refer(row.events)}
    responses: Document = {"200": answered}
    if row.unready:
        responses["503"] = {**answered, "description": row.unready}
    for status, text in row.failures.items():
        content = _content((ErrorResponse,), components)
        responses[str(status)] = {"description": text, "content": content}
    return responses


def _content(types: tuple[Any, ...], components: Components) -> Document:
    schemas = [components.refer(kind) for kind in types]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"application/json": {"schema": schema}}
