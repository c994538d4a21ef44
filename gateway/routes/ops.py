"""What operators and load balancers ask: `/health`, `/ping`, `/version`, `/metrics`."""

import importlib.metadata

import msgspec
from litestar import HttpMethod, Response, route
from litestar.handlers import HTTPRouteHandler
from prometheus_client import CONTENT_TYPE_LATEST

from gateway import __version__
from gateway.http.answers import json_answer
from gateway.services.services import Services

# The framework adds the charset by itself.
_METRICS_TYPE = CONTENT_TYPE_LATEST.removesuffix("; charset=utf-8")
_READ = [HttpMethod.GET, HttpMethod.HEAD]
_PING = [HttpMethod.GET, HttpMethod.HEAD, HttpMethod.POST]


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether every shard serves."""

    status: str
    reason: str | None = None


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's version under vLLM's name, and this server's."""

    version: str
    derender_gateway: str


def routes(services: Services) -> list[HTTPRouteHandler]:
    """Handlers of this group."""
    versions = Version(version=_vllm_version(), derender_gateway=__version__)

    @route("/health", http_method=_READ, sync_to_thread=False)
    def health() -> Response[bytes]:
        reason = services.readiness()
        if reason is None:
            return json_answer(Health(status="ok"))
        answer = Health(status="unavailable", reason=reason)
        return json_answer(answer, 503, {"retry-after": "2"})

    @route("/ping", http_method=_PING, status_code=200, sync_to_thread=False)
    def ping() -> Response[bytes]:
        return json_answer({})

    @route("/version", http_method=_READ, sync_to_thread=False)
    def version() -> Response[bytes]:
        return json_answer(versions)

    @route("/metrics", http_method=_READ)
    async def metrics() -> Response[bytes]:
        counters = await services.pool.counters()
        return Response(services.metrics.render(counters), media_type=_METRICS_TYPE)

    return [health, ping, version, metrics]


def _vllm_version() -> str:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
