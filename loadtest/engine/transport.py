"""How the scripted engine reaches the socket below ASGI, to close it without a proper end."""

import asyncio
import socket
import struct
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "loadtest.transport"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TransportProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with the transport among the extensions of each scope."""

    def on_message_begin(self) -> None:
        """Begin a request's scope."""
        super().on_message_begin()
        # uvicorn's type of a scope names the extensions of ASGI only.
        scope = cast("dict[str, Any]", self.scope)
        scope["extensions"] = {EXTENSION: self.transport}


def close(scope: dict[str, Any]) -> None:
    """Close a connection as the death of its server does: what is written arrives, then the end."""
    _transport(scope).close()


def reset(scope: dict[str, Any]) -> None:
    """Close a connection so that its client sees a reset and not an end."""
    transport = _transport(scope)
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()


def _transport(scope: dict[str, Any]) -> asyncio.Transport:
    transport: asyncio.Transport = scope["extensions"][EXTENSION]
    return transport
