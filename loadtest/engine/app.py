"""The scripted engine as an ASGI application, and how it is served."""

import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import uvicorn

from loadtest.engine.connection import Connection, Receive, Scope, Send
from loadtest.engine.protocol import RequestError
from loadtest.engine.scripted_engine import ScriptedEngine
from loadtest.engine.settings import ScriptedSettings
from loadtest.engine.transport import TransportProtocol

App = Callable[[Scope, Receive, Send], Awaitable[None]]
Handler = Callable[[Connection], Awaitable[None]]

DRAIN_TIMEOUT_S = 3


def _routes(engine: ScriptedEngine) -> dict[str, dict[str, Handler]]:
    """Return the handler of each method of each path."""

    async def arm(connection: Connection) -> None:
        fault = engine.faults.arm(await connection.body())
        await connection.answer(HTTPStatus.OK, fault)

    async def forget(connection: Connection) -> None:
        engine.journal.clear()
        await connection.answer(HTTPStatus.OK, {})

    return {
        "/inference/v1/generate": {"POST": engine.generate},
        "/health": {"GET": _showing(dict)},
        "/stats": {"GET": _showing(lambda: engine.stats)},
        "/requests": {"GET": _showing(engine.journal.shown), "DELETE": forget},
        "/faults": {"POST": arm},
    }


def _showing(view: Callable[[], Any]) -> Handler:
    """Return a handler that answers with what `view` returns."""

    async def show(connection: Connection) -> None:
        await connection.answer(HTTPStatus.OK, view())

    return show


def build_app(settings: ScriptedSettings) -> App:
    """Return the engine as an ASGI application."""
    routes = _routes(ScriptedEngine(settings))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Route one request."""
        connection = Connection(scope, receive, send)
        handlers = routes.get(scope["path"])
        if handlers is None:
            await connection.answer(HTTPStatus.NOT_FOUND, {"detail": "Not Found"})
        elif handler := handlers.get(scope["method"]):
            try:
                await handler(connection)
            except RequestError as error:
                await connection.answer(error.status, error.body())
        else:
            await connection.answer(HTTPStatus.METHOD_NOT_ALLOWED, {"detail": "Method Not Allowed"})

    return app


def server_config(settings: ScriptedSettings) -> uvicorn.Config:
    """Return how uvicorn serves the engine."""
    return uvicorn.Config(
        build_app(settings),
        access_log=False,
        http=TransportProtocol,
        interface="asgi3",
        lifespan="off",
        log_level="warning",
        loop="uvloop",
        timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
        ws="none",
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)
