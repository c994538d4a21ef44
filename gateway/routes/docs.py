"""`/openapi.json` and `/docs`."""

import functools

import msgspec
from litestar import HttpMethod, MediaType, Response, route
from litestar.handlers import HTTPRouteHandler

from gateway.docs import page as docs_page
from gateway.docs.openapi import Document, document
from gateway.http.answers import JSON

_READ = [HttpMethod.GET, HttpMethod.HEAD]


@functools.cache
def _document() -> Document:
    return document()


def routes() -> list[HTTPRouteHandler]:
    """Handlers of this group."""

    @route("/openapi.json", http_method=_READ, sync_to_thread=False)
    def openapi() -> Response[bytes]:
        return Response(msgspec.json.encode(_document()), media_type=JSON)

    @route("/docs", http_method=_READ, sync_to_thread=False)
    def docs() -> Response[str]:
        return Response(docs_page.render(_document()), media_type=MediaType.HTML)

    return [openapi, docs]
