"""The Litestar application."""

import logging
from typing import Any

from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException

from gateway import errors
from gateway.routes import derender, docs, models, ops, render
from gateway.routes.answers import JSON
from gateway.services import Services

_logger = logging.getLogger(__name__)


def build(services: Services) -> Litestar:
    """Put the routes together."""
    return Litestar(
        route_handlers=[
            *derender.routes(services),
            *render.routes(services),
            *models.routes(services),
            *ops.routes(services),
            *docs.routes(),
        ],
        exception_handlers={HTTPException: _http_failure, Exception: _failure},
        openapi_config=None,
        logging_config=None,
    )


def _http_failure(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Unknown path, wrong method, and whatever else HTTP itself refuses."""
    status = error.status_code
    path = request.scope["path"]
    if status == 404:
        message = f"{path} is not served here"
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
