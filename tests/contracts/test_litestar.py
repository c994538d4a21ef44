"""What `gateway.app` takes from Litestar's handlers to serve some routes past the framework."""

from typing import Any

from litestar.handlers import ASGIRouteHandler, asgi

from gateway.http.request import route


async def _handler(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


def test_a_handler_tells_its_paths_and_its_function() -> None:
    made = asgi("/some/path", copy_scope=False)(_handler)
    assert isinstance(made, ASGIRouteHandler)
    assert set(made.paths) == {"/some/path"}
    assert made.fn is _handler


def test_a_route_of_ours_is_such_a_handler() -> None:
    assert isinstance(route("/x", None, None), ASGIRouteHandler)  # type: ignore[arg-type]
