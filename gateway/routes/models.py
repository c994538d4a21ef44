"""`GET /v1/models`."""

import secrets
from collections.abc import Callable

import msgspec
from litestar import Response

from core.protocol.errors import UnknownModel
from gateway.http.answers import json_answer, refusal
from gateway.http.route import Route
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


def _list(services: Services) -> Callable[[], Response[bytes]]:
    def list_models() -> Response[bytes]:
        cards = [_card(services, name) for name in services.model.names]
        return json_answer(ModelList(data=cards))

    return list_models


def _one(services: Services) -> Callable[[str], Response[bytes]]:
    def get_model(model_id: str) -> Response[bytes]:
        # Litestar puts a slash before a parameter that is a path; a name may begin with one.
        names = services.model.names
        name = model_id if model_id in names else model_id.removeprefix("/")
        try:
            return json_answer(_card(services, services.model.name_of(name)))
        except UnknownModel as error:
            return refusal(error)

    return get_model


def _card(services: Services, name: str) -> ModelCard:
    created = services.started_at
    return ModelCard(
        id=name,
        created=created,
        root=services.model.root,
        max_model_len=services.model.max_model_len,
        permission=[Permission(id=f"modelperm-{secrets.token_hex(8)}", created=created)],
    )


ROUTES = (
    Route(
        path="/v1/models",
        methods=("GET", "HEAD"),
        serve=_list,
        summary="Served names",
        answers=(ModelList,),
    ),
    Route(
        path="/v1/models/{model_id:path}",
        methods=("GET", "HEAD"),
        serve=_one,
        summary="One served name",
        answers=(ModelCard,),
        failures={404: "No such name."},
    ),
)
