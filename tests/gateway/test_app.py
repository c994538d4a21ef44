"""The application without processes behind it."""

import asyncio

import httpx
import pytest

from core.protocol.options import ModelOptions
from gateway.app import build
from gateway.engines.settings import EngineSettings
from gateway.services.services import Services
from gateway.services.settings import GatewaySettings
from shards.messages.orders import PoolSettings
from shards.pool.pool import Pool

# Litestar warns of how the parameter of /v1/models/{model_id} is declared.
pytestmark = pytest.mark.filterwarnings("ignore:.*'model_id' declared using deprecated")
FRONT_DOOR = ("/v1/chat/completions", "/v1/completions")


def _ask(method: str, path: str, *engines: str) -> httpx.Response:
    settings = GatewaySettings(
        url="http://127.0.0.1:8100",
        model=ModelOptions(model="demo"),
        engines=EngineSettings(urls=engines) if engines else None,
    )

    async def main() -> httpx.Response:
        pools = [Pool(PoolSettings(addresses=("/nowhere",), authkey=b"key")) for _ in range(2)]
        transport = httpx.ASGITransport(app=build(Services.of(settings, *pools)))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.request(method, path)

    return asyncio.run(main())


@pytest.mark.parametrize("path", FRONT_DOOR)
def test_without_engines_the_front_door_names_the_flag(path: str) -> None:
    answer = _ask("POST", path)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (404, "NotFoundError", 404)
    assert error["message"] == (
        f"the front door is off: {path} is served where --engine-url names an engine"
    )


def test_other_paths_are_not_said_to_be_behind_it() -> None:
    answer = _ask("POST", "/v1/chat/completions/nowhere")
    assert (answer.status_code, "--engine-url" in answer.text) == (404, False)


@pytest.mark.parametrize("path", FRONT_DOOR)
def test_with_engines_the_front_door_is_open(path: str) -> None:
    answer = _ask("GET", path, "http://127.0.0.1:1")
    assert (answer.status_code, answer.headers["allow"]) == (405, "OPTIONS, POST")


@pytest.mark.parametrize("path", ["/v1/chat/completions/derender/", "/tokenize/"])
def test_a_slash_at_the_end_changes_nothing(path: str) -> None:
    answer = _ask("GET", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "OPTIONS, POST")
    assert _ask("POST", path).json()["error"]["message"].startswith("the Content-Type")
