"""The application: the route table, served."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from litestar import HttpMethod, Litestar, Request, Response, asgi, route
from litestar.exceptions import HTTPException
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.types import Receive, Scope, Send

from gateway.http import auth, errors
from gateway.http.answers import JSON, refusal, refuse_method
from gateway.http.route import Route
from gateway.routes.table import ROUTES
from gateway.services.http_request import Direct
from gateway.services.services import Services

_logger = logging.getLogger(__name__)

_OFF = {row.path: row.off for row in ROUTES if row.off}


class App:
    """Serves the routes that pass a shard's bytes on by themselves, and all others by Litestar.

    A route's way through the framework costs about as much as the rest of a chunk's way through
    the gateway, and these routes use nothing of it: the row `bare` of docs/benchmarks.md
    compares with it.
    """

    def __init__(
        self,
        direct: dict[str, Direct],
        framework: Litestar,
        keys: auth.Keys,
    ) -> None:
        """Take the routes.

        Args:
            direct: Handlers of what is served directly, by path.
            framework: Serves all others.
            keys: Say who may ask.
        """
        self._direct = direct
        self._framework = framework
        self._keys = keys

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            if not self._keys.admit(scope):
                await auth.refuse(send)
                return
            serve = self._direct.get(scope["path"])
            if serve is not None:
                await serve(scope, receive, send)
                return
        await self._framework(scope, receive, send)


def build(services: Services) -> App:
    """Put the routes together."""
    direct: dict[str, Direct] = {}
    handlers: list[ASGIRouteHandler | HTTPRouteHandler] = []
    for row in ROUTES:
        serve = row.serve(services)
        if serve is None:
            continue
        if row.direct:
            direct[row.path] = checked = _checked(row.methods, serve)
            # Other spellings of the path, such as a slash at its end, are the framework's to know.
            handlers.append(asgi(row.path, copy_scope=False)(checked))
        else:
            handlers.append(_handler(row, serve))
    framework = Litestar(
        route_handlers=handlers,
        exception_handlers={HTTPException: _http_failure, Exception: _failure},
        openapi_config=None,
        logging_config=None,
    )
    return App(direct, framework, auth.Keys(services.settings.http.api_keys))


def _checked(methods: tuple[str, ...], serve: Direct) -> Direct:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        method = str(scope.get("method"))
        if method in methods:
            await serve(scope, receive, send)
        else:
            await refuse_method(send, method, methods)

    return handler


def _handler(row: Route, serve: Callable[..., Any]) -> HTTPRouteHandler:
    methods = [HttpMethod(method) for method in row.methods]
    threads = None if asyncio.iscoroutinefunction(serve) else False
    made: HTTPRouteHandler = route(
        row.path, http_method=methods, status_code=200, sync_to_thread=threads
    )(serve)
    return made


def _http_failure(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Unknown path, wrong method, and whatever else HTTP itself refuses."""
    status = error.status_code
    path = request.scope["path"]
    if status == 404:
        message = _OFF.get(path) or f"{path} is not served here"
    elif status == 405:
        message = f"{request.method} is not allowed for {path}"
    else:
        message = error.detail
    body = errors.http_body(status, message)
    return Response(body, status_code=status, media_type=JSON, headers=error.headers)


def _failure(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    _logger.error("%s failed", request.scope["path"], exc_info=error)
    return refusal(errors.INTERNAL)
