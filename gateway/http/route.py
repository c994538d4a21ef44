"""One row of the route table: what is served at a path, and what its documents say."""

from collections.abc import Callable
from typing import Any

import msgspec


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    path: str
    """As Litestar writes it; a parameter's type is left out of the document."""
    methods: tuple[str, ...]
    """Those answered alike; the first one is documented."""
    serve: Callable[[Any], Callable[..., Any] | None]
    """Makes the handler from the gateway's services; None where the path is not served now.

    What is `direct` takes scope, receive and send; anything else is a handler of Litestar's."""
    direct: bool = False
    """Served past the framework: see `gateway.app.App`."""
    off: str = ""
    """What a caller is told where the path is not served now."""
    summary: str
    description: str = ""
    requests: tuple[Any, ...] = ()
    answers: tuple[Any, ...] = ()
    events: Any = None
    """The payload of each server-sent event, where `stream` is true."""
    failures: dict[int, str] = {}
    """Statuses other than 200, each with its reason."""
    unready: str = ""
    """Why the answer itself may have status 503."""
    documented: bool = True


FAILURES = {
    400: "The body breaks the protocol or a bound; `param` names the member.",
    401: "No known key, where --api-key names some.",
    404: "The model named is not served.",
    413: "The body is longer than --max-body-bytes.",
    500: "The server failed.",
    503: "Warming up, overloaded or restarting; see Retry-After.",
}
"""Of every call to a shard."""
