"""`POST .../derender`: from HTTP body to shard and back.

These are plain ASGI handlers: the answer is the shard's bytes, so nothing is gained from the
framework's request objects, dependency injection and serialization.
"""

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from core.errors import BadRequest, DerenderError, InternalFault, TimedOut, UnknownModel
from core.ids import stream_id
from core.wire import Call, Envelope, Kind, carried_stream_id, chunk_identity, present
from gateway import errors
from gateway.body import ClientGone, check_content_type, open_envelope, read
from gateway.disconnect import while_connected
from gateway.services import Services

_logger = logging.getLogger(__name__)

_SAFE_ID_BYTES = frozenset(range(0x21, 0x7F))
_LONGEST_ID = 128


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


class _Exchange:
    """One request on its way to an answer."""

    __slots__ = ("endpoint", "headers", "mode", "request_id", "services")

    def __init__(self, endpoint: Endpoint, services: Services, headers: dict[bytes, bytes]) -> None:
        self.endpoint = endpoint
        self.services = services
        self.headers = headers
        self.request_id = _request_id(headers)
        self.mode = "unknown"

    async def answer(self, receive: Receive) -> tuple[int, errors.Headers, bytes]:
        """Status, extra headers and body."""
        try:
            return 200, [], await self._in_time(receive)
        except DerenderError as error:
            self.services.metrics.refused(errors.reason(error))
            answer = errors.answer(error)
            self._log_refusal(answer[0], error)
            return answer
        except ClientGone:
            raise
        except Exception:
            _logger.exception("answering failed", extra={"request_id": self.request_id})
            self.services.metrics.refused("internal")
            return errors.answer(InternalFault("internal error; see the gateway's log"))

    async def _in_time(self, receive: Receive) -> bytes:
        """The answer, unless it takes too long or nobody waits for it any more."""
        timeout_s = self.services.settings.request_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._derender(receive)
        except TimeoutError:
            raise TimedOut(f"the request took more than {timeout_s:g} s") from None

    async def _derender(self, receive: Receive) -> bytes:
        services = self.services
        check_content_type(self.headers)
        body = await read(self.headers, receive, services.settings.max_body_bytes)
        services.metrics.body_read(self.endpoint.name, len(body))
        envelope = open_envelope(body)
        self.mode = "stream" if envelope.stream else "one_shot"
        call = self._call(envelope)
        answering = services.pool.call(self._shard(call), call)
        return await while_connected(answering, receive)

    def _call(self, envelope: Envelope) -> Call:
        endpoint = self.endpoint
        model = _model(envelope.model, self.services.settings.served_model_names)
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
        if call.kind is self.endpoint.kind:
            return pool.least_busy()
        key = carried_stream_id(call.stream_state)
        if key is None:
            request_id, index = chunk_identity(call.generate)
            key = stream_id(request_id or call.fallback_id, index)
        return pool.shard_of(key)

    def _log_refusal(self, status: int, error: DerenderError) -> None:
        level = logging.WARNING if status >= 500 else logging.INFO
        arguments = (self.endpoint.path, status, error.message)
        _logger.log(level, "%s %d: %s", *arguments, extra={"request_id": self.request_id})


def routes(services: Services) -> list[ASGIRouteHandler]:
    """Handlers of both endpoints."""
    return [_route(CHAT, services), _route(COMPLETION, services)]


def _route(endpoint: Endpoint, services: Services) -> ASGIRouteHandler:
    @asgi(endpoint.path, copy_scope=False)
    async def derender(scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.perf_counter()
        if (method := scope.get("method")) != "POST":
            await _refuse_method(str(method), send)
            return
        exchange = _Exchange(endpoint, services, dict(scope["headers"]))
        try:
            status, extra, body = await exchange.answer(receive)
        except ClientGone:
            services.metrics.refused("client_gone")
            return
        extra.append((b"x-request-id", exchange.request_id.encode()))
        await _send(send, status, extra, body)
        elapsed = time.perf_counter() - begun
        services.metrics.answered(endpoint.name, exchange.mode, status, elapsed)
        if _logger.isEnabledFor(logging.DEBUG):
            _logger.debug(
                "%s %d in %.2f ms",
                *(endpoint.path, status, elapsed * 1000),
                extra={"request_id": exchange.request_id},
            )

    return derender


async def _send(send: Send, status: int, extra: errors.Headers, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *extra,
    ]
    start: Any = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _refuse_method(method: str, send: Send) -> None:
    allow = [(b"allow", b"OPTIONS, POST")]
    if method == "OPTIONS":
        start: Any = {"type": "http.response.start", "status": 204, "headers": allow}
        await send(start)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    body = errors.http_body(405, f"{method} is not allowed here; use POST")
    await _send(send, 405, allow, b"" if method == "HEAD" else body)


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


def _request_id(headers: Mapping[bytes, bytes]) -> str:
    """The caller's `x-request-id` where it is short and printable, else a drawn one."""
    given = headers.get(b"x-request-id")
    if given and len(given) <= _LONGEST_ID and _SAFE_ID_BYTES.issuperset(given):
        return given.decode()
    return os.urandom(8).hex()
