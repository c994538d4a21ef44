"""`/openapi.json` and `/docs`."""

import functools
from collections.abc import Sequence

import msgspec
from litestar import MediaType, Response

from gateway.docs import page
from gateway.docs.openapi import document
from gateway.http.answers import JSON
from gateway.http.route import Route


def routes(documented: Sequence[Route]) -> tuple[Route, ...]:
    """The rows of this group, which tell of all others.

    Args:
        documented: The rows to tell of.
    """
    built = functools.cache(lambda: document(documented))

    def openapi() -> Response[bytes]:
        return Response(msgspec.json.encode(built()), media_type=JSON)

    def docs() -> Response[str]:
        return Response(page.render(built()), media_type=MediaType.HTML)

    return (
        Route(
            path="/openapi.json",
            methods=("GET", "HEAD"),
            serve=lambda _: openapi,
            summary="This document",
            documented=False,
        ),
        Route(
            path="/docs",
            methods=("GET", "HEAD"),
            serve=lambda _: docs,
            summary="This document as a page",
            documented=False,
        ),
    )
