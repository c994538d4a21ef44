"""`POST .../render`, `/tokenize` and `/detokenize`: raw bytes to a bulk shard and back."""

import msgspec
from litestar.handlers import ASGIRouteHandler

from core.protocol.calls import Render, RenderTarget
from gateway.http.request import ShardExchange, route
from gateway.services.services import Services
from shards.pool.pool import Pool


class Endpoint(msgspec.Struct, frozen=True):
    """One path."""

    path: str
    target: RenderTarget


ENDPOINTS = (
    Endpoint("/v1/chat/completions/render", RenderTarget.CHAT),
    Endpoint("/v1/completions/render", RenderTarget.COMPLETION),
    Endpoint("/v1/responses/render", RenderTarget.RESPONSES),
    Endpoint("/v1/messages/render", RenderTarget.MESSAGES),
    Endpoint("/tokenize", RenderTarget.TOKENIZE),
    Endpoint("/detokenize", RenderTarget.DETOKENIZE),
)


class _Render(ShardExchange):
    """One request that becomes tokens, or tokens that become text."""

    def __init__(
        self, endpoint: Endpoint, services: Services, pool: Pool, headers: dict[bytes, bytes]
    ) -> None:
        super().__init__(endpoint.target.value, endpoint.path, services, headers)
        self._target = endpoint.target
        self._pool = pool

    async def call(self, body: bytes) -> bytes:
        self.mode = "render"
        call = Render(
            call_id=self._pool.new_call_id(),
            trace_id=self.request_id,
            target=self._target,
            body=body,
            # A caller's own ID becomes part of the rendered request's, as vLLM has it.
            caller_id=self.headers.get(b"x-request-id", b"").decode("latin-1"),
        )
        return await self._pool.call(self._pool.least_busy(), call)


def routes(services: Services) -> list[ASGIRouteHandler]:
    """Handlers of this group; none where no bulk shards are run."""
    pool = services.render_pool
    if pool is None:
        return []
    return [_route(endpoint, services, pool) for endpoint in ENDPOINTS]


def _route(endpoint: Endpoint, services: Services, pool: Pool) -> ASGIRouteHandler:
    return route(
        endpoint.path, services, lambda headers: _Render(endpoint, services, pool, headers)
    )
