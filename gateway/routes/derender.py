"""`POST .../derender`: from HTTP body to shard and back."""

import os
import time
from collections.abc import Callable

from core.protocol.calls import DerenderCall, DerenderChatChunk, DerenderCompletionChunk
from core.protocol.envelope import Envelope, Named, derender_call
from core.protocol.openai import (
    ChatResponse,
    ChatStreamAnswer,
    CompletionResponse,
    CompletionStreamAnswer,
)
from core.protocol.plan import ApiName
from gateway.http.body import open_envelope
from gateway.http.route import FAILURES, Route
from gateway.routes import bodies
from gateway.services.http_request import Direct, ShardRequest, serve_post
from gateway.services.services import Services

_CHAT = "/v1/chat/completions/derender"
_COMPLETION = "/v1/completions/derender"


class _DerenderRequest(ShardRequest):
    """One derender request."""

    def __init__(
        self, api: ApiName, path: str, services: Services, headers: dict[bytes, bytes]
    ) -> None:
        super().__init__(api.value, path, services, headers)
        self._api = api
        self._model = services.model

    async def call(self, body: bytes) -> bytes:
        envelope = open_envelope(body)
        self.mode = "stream" if envelope.stream else "one_shot"
        call = self._call(envelope)
        return await self._model.pool.call(self._shard(call), call)

    def _call(self, envelope: Envelope) -> DerenderCall:
        named = Named(
            call_id=self._model.pool.new_call_id(),
            trace_id=self.request_id,
            model=self._model.name_of(envelope.model),
            created=int(time.time()),
            fallback_id=os.urandom(8).hex(),
        )
        return derender_call(envelope, self._api, named)

    def _shard(self, call: DerenderCall) -> int:
        """Chunks of one stream go to one shard, everything else to the least busy one."""
        if isinstance(call, DerenderChatChunk | DerenderCompletionChunk):
            return self._model.pool.shard_of(call.stream or call.fallback_id)
        return self._model.pool.least_busy()


def _serve(api: ApiName, path: str) -> Callable[[Services], Direct]:
    def serve(services: Services) -> Direct:
        return serve_post(
            path, services, lambda headers: _DerenderRequest(api, path, services, headers)
        )

    return serve


ROUTES = (
    Route(
        path=_CHAT,
        methods=("POST",),
        serve=_serve(ApiName.CHAT, _CHAT),
        direct=True,
        summary="Token IDs of a chat generation into a chat completion, or a chunk of one",
        requests=(bodies.DerenderChatRequest, bodies.DerenderChatStreamRequest),
        answers=(ChatResponse, ChatStreamAnswer),
        failures=FAILURES,
    ),
    Route(
        path=_COMPLETION,
        methods=("POST",),
        serve=_serve(ApiName.COMPLETION, _COMPLETION),
        direct=True,
        summary="Token IDs of generations into a completion, or a chunk of one",
        requests=(bodies.DerenderCompletionRequest, bodies.DerenderCompletionStreamRequest),
        answers=(CompletionResponse, CompletionStreamAnswer),
        failures=FAILURES,
    ),
)
