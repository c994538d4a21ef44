"""API keys: who is let in, and where."""

import asyncio
from typing import Any

import httpx
import pytest

from core.protocol.options import ModelOptions
from gateway.app import build
from gateway.http.auth import Keys
from gateway.services.services import Services
from gateway.services.settings import GatewaySettings, HttpSettings
from shards.messages.orders import PoolSettings
from shards.pool.pool import Pool

KEYS = Keys(("first", "second key"))


def _scope(path: str, *authorization: bytes, method: str = "POST") -> Any:
    headers = [(b"authorization", value) for value in authorization]
    return {"path": path, "method": method, "headers": [(b"accept", b"*/*"), *headers]}


@pytest.mark.parametrize("given", [b"Bearer first", b"bearer first", b"Bearer  second key "])
def test_a_known_key_is_let_in(given: bytes) -> None:
    assert KEYS.admit(_scope("/v1/chat/completions", given))


@pytest.mark.parametrize(
    "given", [(), (b"first",), (b"Basic first",), (b"Bearer fir",), (b"Bearer ",), (b"",)]
)
@pytest.mark.parametrize(
    "path",
    [
        *("/v1/models", "/v1/completions/derender", "/tokenize", "/anything", ""),
        *("//v1/chat/completions", "///v1/models", "/health/../v1/models", "//health"),
    ],
)
def test_others_are_not(path: str, given: tuple[bytes, ...]) -> None:
    assert not KEYS.admit(_scope(path, *given))


@pytest.mark.parametrize("path", ["/health", "/metrics", "/version", "/ping", "/openapi.json"])
def test_what_probes_ask_is_open(path: str) -> None:
    assert KEYS.admit(_scope(path))


def test_a_preflight_needs_no_key() -> None:
    assert KEYS.admit(_scope("/v1/chat/completions", method="OPTIONS"))


def test_without_keys_all_are_let_in() -> None:
    assert Keys(()).admit(_scope("/v1/chat/completions"))


@pytest.mark.filterwarnings("ignore:.*'model_id' declared using deprecated")
def test_a_refusal_has_openai_shape() -> None:
    settings = GatewaySettings(
        url="http://127.0.0.1:8100",
        model=ModelOptions(model="demo"),
        http=HttpSettings(api_keys=("secret",)),
    )

    async def ask(**headers: str) -> httpx.Response:
        pool = Pool(PoolSettings(addresses=("/nowhere",), authkey=b"key"))
        transport = httpx.ASGITransport(app=build(Services.of(settings, pool)))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.get("/v1/models", headers=headers)

    refused = asyncio.run(ask())
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert set(refused.json()["error"]) == {"message", "type", "param", "code"}
    assert asyncio.run(ask(authorization="Bearer secret")).status_code == 200
