"""`POST .../derender`: from HTTP body to shard and back."""

import os
import time

import msgspec
from litestar.handlers import ASGIRouteHandler

from core.protocol.calls import DerenderCall, DerenderChatChunk, DerenderCompletionChunk
from core.protocol.envelope import Envelope, Named, derender_call
from core.protocol.errors import UnknownModel
from core.protocol.plan import ApiName
from gateway.http.body import open_envelope
from gateway.http.request import ShardExchange, route
from gateway.services.services import Services


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What tells the two derender endpoints apart."""

    name: str
    """Label in the metrics."""
    path: str
    api: ApiName


CHAT = Endpoint(
    name="chat",
    path="/v1/chat/completions/derender",
    api=ApiName.CHAT,
)
COMPLETION = Endpoint(
    name="completion",
    path="/v1/completions/derender",
    api=ApiName.COMPLETION,
)


class _Derender(ShardExchange):
    """One derender request."""

    def __init__(self, endpoint: Endpoint, services: Services, headers: dict[bytes, bytes]) -> None:
        super().__init__(endpoint.name, endpoint.path, services, headers)
        self._endpoint = endpoint

    async def call(self, body: bytes) -> bytes:
        envelope = open_envelope(body)
        self.mode = "stream" if envelope.stream else "one_shot"
        call = self._call(envelope)
        return await self.services.pool.call(self._shard(call), call)

    def _call(self, envelope: Envelope) -> DerenderCall:
        named = Named(
            call_id=self.services.pool.new_call_id(),
            trace_id=self.request_id,
            model=_model(envelope.model, self.services.settings.model.names),
            created=int(time.time()),
            fallback_id=os.urandom(8).hex(),
        )
        return derender_call(envelope, self._endpoint.api, named)

    def _shard(self, call: DerenderCall) -> int:
        """Chunks of one stream go to one shard, everything else to the least busy one."""
        pool = self.services.pool
        if isinstance(call, DerenderChatChunk | DerenderCompletionChunk):
            return pool.shard_of(call.stream or call.fallback_id)
        return pool.least_busy()


def routes(services: Services) -> list[ASGIRouteHandler]:
    """Handlers of both endpoints."""
    return [_route(CHAT, services), _route(COMPLETION, services)]


def _route(endpoint: Endpoint, services: Services) -> ASGIRouteHandler:
    return route(endpoint.path, services, lambda headers: _Derender(endpoint, services, headers))


def _model(named: str | None, served: tuple[str, ...]) -> str:
    """The name to report: the caller's own, or the first served one."""
    if not named:
        return served[0]
    if named not in served:
        aliases = ", ".join(served)
        raise UnknownModel(
            f"The model `{named}` does not exist. Valid aliases: {aliases}.", "model"
        )
    return named
