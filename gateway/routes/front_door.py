"""`POST /v1/chat/completions` and `/v1/completions`: the whole way, engine included."""

from litestar.handlers import ASGIRouteHandler

from core.protocol.plan import ApiName
from gateway.front_door.request import Endpoint, FrontDoorExchange
from gateway.http.request import route
from gateway.services.services import FrontDoor, Services

ENDPOINTS = (
    Endpoint("chat_completions", "/v1/chat/completions", ApiName.CHAT),
    Endpoint("completions", "/v1/completions", ApiName.COMPLETION),
)


def routes(services: Services) -> list[ASGIRouteHandler]:
    """Handlers of this group; none where no engine is named."""
    door = services.front_door
    return [] if door is None else [_route(endpoint, services, door) for endpoint in ENDPOINTS]


def _route(endpoint: Endpoint, services: Services, door: FrontDoor) -> ASGIRouteHandler:
    return route(
        endpoint.path,
        services,
        lambda headers: FrontDoorExchange(endpoint, services, door, headers),
    )
