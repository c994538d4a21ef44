"""`POST .../derender`: from HTTP body to shard and back."""

import os
import time

import msgspec
from litestar.handlers import ASGIRouteHandler

from core.protocol.errors import BadRequest, UnknownModel
from core.protocol.ids import stream_id
from core.protocol.wire import Call, Envelope, Kind, carried_stream_id, chunk_identity, present
from gateway.http.body import open_envelope
from gateway.http.request import ShardExchange, route
from gateway.services.services import Services


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What tells the two derender endpoints apart."""

    name: str
    """Label in the metrics."""
    path: str
    kind: Kind
    stream_kind: Kind
    generate_field: str
    request_field: str


CHAT = Endpoint(
    name="chat",
    path="/v1/chat/completions/derender",
    kind=Kind.CHAT,
    stream_kind=Kind.CHAT_STREAM,
    generate_field="generate_response",
    request_field="chat_request",
)
COMPLETION = Endpoint(
    name="completion",
    path="/v1/completions/derender",
    kind=Kind.COMPLETION,
    stream_kind=Kind.COMPLETION_STREAM,
    generate_field="generate_responses",
    request_field="completion_request",
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

    def _call(self, envelope: Envelope) -> Call:
        endpoint = self._endpoint
        model = _model(envelope.model, self.services.settings.model.names)
        field = "generate_chunk" if envelope.stream else endpoint.generate_field
        generate = present(getattr(envelope, field))
        if not generate:
            shown = "true" if envelope.stream else "false"
            raise BadRequest(f"`{field}` is required when `stream` is {shown}", field)
        return Call(
            call_id=self.services.pool.new_call_id(),
            kind=endpoint.stream_kind if envelope.stream else endpoint.kind,
            model=model,
            created=int(time.time()),
            fallback_id=os.urandom(8).hex(),
            generate=generate,
            stream_state=present(envelope.stream_state) if envelope.stream else b"",
            prompt_tokens=present(envelope.prompt_tokens),
            prompt_token_ids=present(envelope.prompt_token_ids),
            request=present(getattr(envelope, endpoint.request_field)),
            trace_id=self.request_id,
            checkpoints=envelope.checkpoints,
        )

    def _shard(self, call: Call) -> int:
        """Chunks of one stream go to one shard, everything else to the least busy one."""
        pool = self.services.pool
        if call.kind is self._endpoint.kind:
            return pool.least_busy()
        key = carried_stream_id(call.stream_state)
        if key is None:
            request_id, index = chunk_identity(call.generate)
            key = stream_id(request_id or call.fallback_id, index)
        return pool.shard_of(key)


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
