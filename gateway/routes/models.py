"""`GET /v1/models`."""

import secrets

import msgspec
from litestar import HttpMethod, Response, route
from litestar.handlers import HTTPRouteHandler

from core.protocol.errors import UnknownModel
from gateway.http.answers import json_answer, refusal
from gateway.services.services import Services


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's old permission object, as vLLM still reports it."""

    id: str
    object: str = "model_permission"
    created: int
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: str | None = None
    is_blocking: bool = False


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One served name."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "vllm"
    root: str
    parent: str | None = None
    max_model_len: int | None
    """Null until the first shard has read the model's config."""
    permission: list[Permission]


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Every served name."""

    object: str = "list"
    data: list[ModelCard]


def routes(services: Services) -> list[HTTPRouteHandler]:
    """Handlers of this group."""
    names = services.settings.model.names

    @route("/v1/models", http_method=[HttpMethod.GET, HttpMethod.HEAD], sync_to_thread=False)
    def list_models() -> Response[bytes]:
        return json_answer(ModelList(data=[_card(services, name) for name in names]))

    @route(
        "/v1/models/{model_id:path}",
        http_method=[HttpMethod.GET, HttpMethod.HEAD],
        sync_to_thread=False,
    )
    def get_model(model_id: str) -> Response[bytes]:
        for name in names:
            if model_id in (name, f"/{name}"):
                return json_answer(_card(services, name))
        shown = model_id.removeprefix("/")
        aliases = ", ".join(names)
        message = f"The model `{shown}` does not exist. Valid aliases: {aliases}."
        return refusal(UnknownModel(message, "model"))

    return [list_models, get_model]


def _card(services: Services, name: str) -> ModelCard:
    ready = services.pool.ready
    created = services.started_at
    return ModelCard(
        id=name,
        created=created,
        root=services.settings.model.model,
        max_model_len=ready.max_model_len if ready else None,
        permission=[Permission(id=f"modelperm-{secrets.token_hex(8)}", created=created)],
    )
