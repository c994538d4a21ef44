"""The Litestar application."""

import logging
from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException
from litestar.handlers import ASGIRouteHandler

from gateway.http import auth, errors
from gateway.http.answers import JSON
from gateway.routes import derender, docs, front_door, models, ops, render
from gateway.services.services import Services

_logger = logging.getLogger(__name__)

_NEED_ENGINES = frozenset(endpoint.path for endpoint in front_door.ENDPOINTS)


class App:
    """Serves the routes that pass a shard's bytes on by themselves, and all others by Litestar.

    A route's way through the framework costs about as much as the rest of a chunk's way through
    the gateway, and these routes use nothing of it.
    """

    def __init__(
        self, direct: Sequence[ASGIRouteHandler], framework: Litestar, keys: auth.Keys
    ) -> None:
        """Take the routes to serve directly, which the framework knows too.

        Args:
            direct: Those routes.
            framework: Serves all others.
            keys: Say who may ask.
        """
        self._keys = keys
        self._direct = {path: route.fn for route in direct for path in route.paths}
        self._framework = framework

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
    direct = [
        *front_door.routes(services),
        *derender.routes(services),
        *render.routes(services),
    ]
    framework = Litestar(
        route_handlers=[
            *direct,
            *models.routes(services),
            *ops.routes(services),
            *docs.routes(),
        ],
        exception_handlers={HTTPException: _http_failure, Exception: _failure},
        openapi_config=None,
        logging_config=None,
    )
    return App(direct, framework, auth.Keys(services.settings.http.api_keys))


def _http_failure(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Unknown path, wrong method, and whatever else HTTP itself refuses."""
    status = error.status_code
    path = request.scope["path"]
    if status == 404:
        message = f"{path} is not served here"
        if path in _NEED_ENGINES:
            message = f"the front door is off: {path} is served where --engine-url names an engine"
    elif status == 405:
        message = f"{request.method} is not allowed for {path}"
    else:
        message = error.detail
    body = errors.http_body(status, message)
    return Response(body, status_code=status, media_type=JSON, headers=error.headers)


def _failure(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    _logger.error("%s failed", request.scope["path"], exc_info=error)
    body = errors.body(500, "InternalServerError", "internal error; see the gateway's log")
    return Response(body, status_code=500, media_type=JSON)
