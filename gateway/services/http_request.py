"""One request of a route that passes a shard's bytes on: from its headers to its answer.

These are plain ASGI handlers: the answer is the shard's bytes, so nothing is gained from the
framework's request objects, dependency injection and serialization.
"""

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from litestar.types import Receive, Scope, Send

from core.protocol.errors import DerenderError
from gateway.http import errors
from gateway.http.answers import send_answer
from gateway.http.body import ClientGone, check_content_type, read
from gateway.http.deadlines import within
from gateway.http.disconnects import while_connected
from gateway.services.services import Services

Direct: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""A plain ASGI handler."""

_logger = logging.getLogger(__name__)

_SAFE_ID_BYTES = frozenset(range(0x21, 0x7F))
_LONGEST_ID = 128


class HttpRequest(ABC):
    """One request on its way to an answer.

    Attributes:
        name: Label in the metrics.
        path: The route's.
        mode: Label in the metrics, once the body was read.
        caller_id: The caller's `x-request-id` as it came; empty where there is none.
        safe_id: The same where it can be a header's value and a word in the log; else empty.
        request_id: That, or one drawn.
    """

    def __init__(
        self, name: str, path: str, services: Services, headers: dict[bytes, bytes]
    ) -> None:
        """Begin with the headers."""
        self.name = name
        self.path = path
        self.services = services
        self.headers = headers
        given = headers.get(b"x-request-id", b"")
        self.caller_id = given.decode("latin-1")
        self.safe_id = self.caller_id if is_safe_id(given) else ""
        self.request_id = self.safe_id or os.urandom(8).hex()
        self.mode = "unknown"

    @abstractmethod
    async def run(self, receive: Receive, send: Send) -> int:
        """Serve, the whole answer included.

        Returns:
            The status that went out.

        Raises:
            ClientGone: The caller left.
        """

    async def read(self, receive: Receive) -> bytes:
        """The request's body.

        Raises:
            BadRequest: It is not JSON, or too long.
            ClientGone: The caller left.
        """
        check_content_type(self.headers)
        body = await read(self.headers, receive, self.services.settings.http.max_body_bytes)
        self.services.metrics.body_read(self.name, len(body))
        return body

    def refuse(self, error: Exception) -> tuple[int, errors.Headers, bytes]:
        """Count and log a failure; its status, extra headers and body.

        Raises:
            ClientGone: That is the failure: nobody is left to be told.
        """
        if isinstance(error, ClientGone):
            raise error
        if isinstance(error, DerenderError):
            self.services.metrics.refused(errors.reason(error))
            answer = errors.answer(error)
            self._log_refusal(answer[0], error)
            return answer
        _logger.error("answering failed", exc_info=error, extra={"request_id": self.request_id})
        self.services.metrics.refused("internal")
        return errors.answer(errors.INTERNAL)

    def tagged(self, headers: errors.Headers) -> errors.Headers:
        """Headers with the request's ID among them."""
        return [*headers, (b"x-request-id", self.request_id.encode())]

    def _log_refusal(self, status: int, error: DerenderError) -> None:
        level = logging.WARNING if status >= 500 else logging.INFO
        arguments = (self.path, status, error.message)
        _logger.log(level, "%s %d: %s", *arguments, extra={"request_id": self.request_id})


class ShardRequest(HttpRequest):
    """A request that one shard answers."""

    @abstractmethod
    async def call(self, body: bytes) -> bytes:
        """Have a shard answer; any DerenderError is a refusal."""

    async def run(self, receive: Receive, send: Send) -> int:
        """Serve, the whole answer included."""
        timeout_s = self.services.settings.http.request_timeout_s
        status, extra = 200, errors.Headers()
        try:
            answer = await within(timeout_s, self._work(receive))
        except Exception as error:  # noqa: BLE001 - all but a bug is a DerenderError
            status, extra, answer = self.refuse(error)
        await send_answer(send, status, self.tagged(extra), answer)
        return status

    async def _work(self, receive: Receive) -> bytes:
        """The answer, unless nobody waits for it any more."""
        body = await self.read(receive)
        return await while_connected(self.call(body), receive)


def serve_post(
    path: str, services: Services, begin: Callable[[dict[bytes, bytes]], HttpRequest]
) -> Direct:
    """A handler of requests that were found to be POST.

    Args:
        path: Where it is served, for the log.
        services: What routes work with.
        begin: Makes the request from the headers.
    """

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.perf_counter()
        request = begin(dict(scope["headers"]))
        try:
            status = await request.run(receive, send)
        except ClientGone:
            services.metrics.refused("client_gone")
            return
        elapsed = time.perf_counter() - begun
        services.metrics.answered(request.name, request.mode, status, elapsed)
        if _logger.isEnabledFor(logging.DEBUG):
            _logger.debug(
                "%s %d in %.2f ms",
                *(path, status, elapsed * 1000),
                extra={"request_id": request.request_id},
            )

    return handler


def is_safe_id(given: bytes) -> bool:
    """Whether a request ID can be a header's value and a word in the log."""
    return 0 < len(given) <= _LONGEST_ID and _SAFE_ID_BYTES.issuperset(given)
