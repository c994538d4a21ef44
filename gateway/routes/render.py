"""`POST .../render`, `/tokenize` and `/detokenize`: raw bytes to a bulk shard and back."""

import msgspec
from litestar.handlers import ASGIRouteHandler

from core.protocol.wire import Call, Kind
from gateway.http.request import ShardExchange, route
from gateway.services.services import Services
from shards.pool.pool import Pool


class Endpoint(msgspec.Struct, frozen=True):
    """One path."""

    path: str
    kind: Kind


ENDPOINTS = (
    Endpoint("/v1/chat/completions/render", Kind.RENDER_CHAT),
    Endpoint("/v1/completions/render", Kind.RENDER_COMPLETION),
    Endpoint("/v1/responses/render", Kind.RENDER_RESPONSES),
    Endpoint("/v1/messages/render", Kind.RENDER_MESSAGES),
    Endpoint("/tokenize", Kind.TOKENIZE),
    Endpoint("/detokenize", Kind.DETOKENIZE),
)


class _Render(ShardExchange):
    """One request that becomes tokens, or tokens that become text."""

    def __init__(
        self, endpoint: Endpoint, services: Services, pool: Pool, headers: dict[bytes, bytes]
    ) -> None:
        super().__init__(endpoint.kind.value, endpoint.path, services, headers)
        self._kind = endpoint.kind
        self._pool = pool

    async def call(self, body: bytes) -> bytes:
        self.mode = "render"
        call = Call(
            call_id=self._pool.new_call_id(),
            kind=self._kind,
            model="",
            created=0,
            # A caller's own ID becomes part of the rendered request's, as vLLM has it.
            fallback_id=self.headers.get(b"x-request-id", b"").decode("latin-1"),
            generate=b"",
            stream_state=b"",
            prompt_tokens=b"",
            prompt_token_ids=b"",
            request=body,
            trace_id=self.request_id,
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
