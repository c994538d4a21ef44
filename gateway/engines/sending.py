"""Sends one request to one engine, and judges how its answer begins."""

import asyncio
import io
import socket
from enum import Enum
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
from aiohttp import ClientResponse, ClientSession

from core.protocol.errors import (
    DerenderError,
    EngineFailed,
    EngineRefused,
    EngineTimedOut,
    EngineUnreachable,
    TimedOut,
)
from gateway.engines.engine import Attempt, Ending, Engine
from gateway.engines.refusals import refusal
from gateway.engines.settings import EngineSettings
from gateway.http.deadlines import within

GENERATE_PATH = "/inference/v1/generate"
HEALTH_PATH = "/health"

_READ_BUFFER_BYTES = 64 << 10
_LONGEST_REFUSAL_BYTES = 64 << 10
_LONGEST_PLAIN_BODY_BYTES = 1 << 20
_RETRIED_STATUSES = frozenset({502, 503, 504})

_EVENT_STREAM = "text/event-stream"
_JSON = "application/json"


class Request(msgspec.Struct, frozen=True):
    """What is sent to whichever engine is chosen."""

    body: bytes
    headers: list[tuple[str, str]]
    stream: bool


class RetryWhere(Enum):
    """Where a request that got no answer may be sent again."""

    NOWHERE = "nowhere"
    ELSEWHERE = "elsewhere"
    ANYWHERE = "anywhere"


class Unanswered(Exception):
    """An engine gave no answer that can be handed on. Never leaves the package.

    Attributes:
        error: What the caller gets, unless another attempt succeeds.
        again: Where another may be made.
    """

    def __init__(self, error: DerenderError, again: RetryWhere = RetryWhere.NOWHERE) -> None:
        """Keep both."""
        super().__init__(error.message)
        self.error = error
        self.again = again


class Sender:
    """The connections to all engines."""

    def __init__(self, settings: EngineSettings) -> None:
        """Open no connection yet. Needs a running event loop."""
        self._settings = settings
        self._pooled = _session(settings, keep=True)
        self._fresh = _session(settings, keep=False)

    async def close(self) -> None:
        """Close every connection, those in use too."""
        await self._pooled.close()
        await self._fresh.close()

    async def send(self, attempt: Attempt, request: Request, *, fresh: bool) -> ClientResponse:
        """Send a request, and await the head of a fitting answer.

        A pooled connection that the engine closed in the meantime is no failure: the request is
        sent over a new one.

        Args:
            attempt: Is ended where this raises anything but a cancellation.
            request: What to send.
            fresh: Take a new connection, where a pooled one may be closed already.

        Raises:
            Unanswered: There is no such answer.
        """
        connection = SimpleNamespace(reused=False)
        try:
            if fresh:
                response = await self._post(self._fresh, attempt.engine, request, connection)
            else:
                response = await self._post_pooled(attempt.engine, request, connection)
        except (TimedOut, aiohttp.ClientError) as error:
            raise self._lost(attempt, error) from error
        try:
            await self._judge(attempt, request, response)
        except BaseException:
            response.close()
            raise
        return response

    async def is_healthy(self, engine: Engine) -> bool:
        """Whether the engine's health check succeeds in time."""
        headers = _authorized([("accept", "*/*")], engine, self._settings.api_key)
        timeout = aiohttp.ClientTimeout(total=self._settings.probe_interval_s)
        try:
            async with self._fresh.get(
                engine.url + HEALTH_PATH, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return response.status == 200
        except (TimeoutError, aiohttp.ClientError):
            return False

    async def _post_pooled(
        self, engine: Engine, request: Request, connection: SimpleNamespace
    ) -> ClientResponse:
        try:
            return await self._post(self._pooled, engine, request, connection)
        except aiohttp.ClientConnectionError as error:
            in_time = not isinstance(error, aiohttp.ServerTimeoutError)
            if not (connection.reused and in_time) or self._fresh.closed:
                raise
        return await self._post(self._fresh, engine, request, connection)

    async def _post(
        self, session: ClientSession, engine: Engine, request: Request, connection: SimpleNamespace
    ) -> ClientResponse:
        # The session's own timer starts when the body is sent; an engine may not read it.
        return await within(
            self._settings.idle_timeout_s,
            session.post(
                engine.url + GENERATE_PATH,
                data=_payload(request.body),
                headers=_authorized(request.headers, engine),
                allow_redirects=False,
                trace_request_ctx=connection,
            ),
        )

    def _lost(self, attempt: Attempt, error: Exception) -> Unanswered:
        """End an attempt that ended before a status line came."""
        url, settings = attempt.engine.url, self._settings
        what = str(error) or type(error).__name__
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            attempt.fail(Ending.TIMED_OUT, "it does not accept connections", to_connect=True)
            limit = f"{settings.connect_timeout_s:g} s (--engine-connect-timeout)"
            message = f"engine {url} accepted no connection within {limit}"
            return Unanswered(EngineTimedOut(message), RetryWhere.ANYWHERE)
        if isinstance(error, TimedOut | aiohttp.ServerTimeoutError):
            attempt.fail(Ending.TIMED_OUT, "it does not answer")
            return Unanswered(silent(attempt.engine, settings))
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL):
            attempt.fail(Ending.UNREACHABLE, what, to_connect=True)
            message = f"engine {url} cannot be reached: {_cause(error)}"
            return Unanswered(EngineUnreachable(message), RetryWhere.ANYWHERE)
        if isinstance(error, aiohttp.ClientConnectionError):
            attempt.fail(Ending.FAILED, "it closed a connection before it answered")
            message = f"engine {url} closed the connection before it answered"
            return Unanswered(EngineFailed(message), RetryWhere.ANYWHERE)
        attempt.fail(Ending.FAILED, "its answer is no HTTP")
        return Unanswered(EngineFailed(f"engine {url} sent what is no HTTP answer"))

    async def _judge(self, attempt: Attempt, request: Request, response: ClientResponse) -> None:
        """Refuse an answer that is none.

        Raises:
            Unanswered: It is an error, or not of the kind that was asked for.
        """
        engine, status = attempt.engine, response.status
        if status != 200:
            said = await self._refusal_body(response)
            error = refusal(
                engine.url,
                status,
                said,
                response.headers.get("Retry-After"),
                callers_key=self._settings.forward_authorization,
            )
            if isinstance(error, EngineRefused):
                # A 503 may come from something in front of an engine that is gone.
                attempt.end(Ending.REFUSED, well=status < 500)
            else:
                attempt.fail(Ending.FAILED, f"it answered with status {status}")
            again = RetryWhere.ELSEWHERE if status in _RETRIED_STATUSES else RetryWhere.NOWHERE
            raise Unanswered(error, again)
        fault = _unfit(response, _EVENT_STREAM if request.stream else _JSON)
        if fault:
            attempt.fail(Ending.FAILED, fault)
            raise Unanswered(EngineFailed(f"engine {engine.url}: {fault}"))
        attempt.answered()

    async def _refusal_body(self, response: ClientResponse) -> bytes:
        """As much of it as comes soon."""
        said = bytearray()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                while len(said) < _LONGEST_REFUSAL_BYTES:
                    data = await response.content.readany()
                    if not data:
                        break
                    said += data
        except (TimeoutError, aiohttp.ClientError):
            pass  # The status alone says enough.
        return bytes(said)


def silent(engine: Engine, settings: EngineSettings) -> EngineTimedOut:
    """The error for an engine that sends nothing for too long."""
    limit = f"{settings.idle_timeout_s:g} s (--engine-idle-timeout)"
    return EngineTimedOut(f"engine {engine.url} sent nothing for {limit}")


def _session(settings: EngineSettings, *, keep: bool) -> ClientSession:
    pool: dict[str, Any] = {"force_close": True}
    if keep:
        pool = {"keepalive_timeout": settings.keepalive_timeout_s}
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_note_reuse)
    return ClientSession(
        connector=aiohttp.TCPConnector(limit=0, socket_factory=_socket, **pool),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        read_bufsize=_READ_BUFFER_BYTES,
        timeout=aiohttp.ClientTimeout(
            total=None, connect=settings.connect_timeout_s, sock_read=settings.idle_timeout_s
        ),
        trace_configs=[trace],
    )


def _socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    # An engine whose machine is gone is noticed in a minute, however long it may be silent; and
    # what stands between keeps the connection while a long generation says nothing.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return made


async def _note_reuse(_: ClientSession, context: SimpleNamespace, __: object) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.reused = True


def _payload(body: bytes) -> bytes | io.BytesIO:
    """A long body is written in parts, so that others get a turn in between."""
    return body if len(body) <= _LONGEST_PLAIN_BODY_BYTES else io.BytesIO(body)


def _authorized(
    headers: list[tuple[str, str]], engine: Engine, api_key: str = ""
) -> list[tuple[str, str]]:
    if api_key:
        return [*headers, ("authorization", f"Bearer {api_key}")]
    if not engine.basic_authorization or any(name == "authorization" for name, _ in headers):
        return headers
    return [*headers, ("authorization", engine.basic_authorization)]


def _cause(error: Exception) -> str:
    """The system's words for it; the client's own name the host a second time."""
    cause = getattr(error, "os_error", None)
    return getattr(cause, "strerror", None) or str(cause or error) or type(error).__name__


def _unfit(response: ClientResponse, expected: str) -> str | None:
    """Why the answer cannot be read; None where it can."""
    kind = response.headers.get("Content-Type", "")
    if kind.partition(";")[0].strip().lower() != expected:
        return f"it answered with content type {kind!r}, not {expected}"
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        return f"it answered with content encoding {coding!r}, which was not asked for"
    return None
