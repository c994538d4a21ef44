"""What operators and load balancers ask: `/health`, `/ping`, `/version`, `/metrics`."""

import importlib.metadata
from collections.abc import Awaitable, Callable

import msgspec
from litestar import Response
from prometheus_client import CONTENT_TYPE_LATEST

from gateway import __version__
from gateway.http.answers import json_answer
from gateway.http.route import Route
from gateway.services.services import Services

# The framework adds the charset by itself.
_METRICS_TYPE = CONTENT_TYPE_LATEST.removesuffix("; charset=utf-8")


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether every shard serves."""

    status: str
    reason: str | None = None


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's version under vLLM's name, and this server's."""

    version: str
    derender_gateway: str


def _health(services: Services) -> Callable[[], Response[bytes]]:
    def health() -> Response[bytes]:
        reason = services.model.readiness()
        if reason is None:
            return json_answer(Health(status="ok"))
        answer = Health(status="unavailable", reason=reason)
        return json_answer(answer, 503, {"retry-after": "2"})

    return health


def _ping(_: Services) -> Callable[[], Response[bytes]]:
    def ping() -> Response[bytes]:
        return json_answer({})

    return ping


def _version(_: Services) -> Callable[[], Response[bytes]]:
    versions = Version(version=_vllm_version(), derender_gateway=__version__)

    def version() -> Response[bytes]:
        return json_answer(versions)

    return version


def _metrics(services: Services) -> Callable[[], Awaitable[Response[bytes]]]:
    async def metrics() -> Response[bytes]:
        counters = await services.model.pool.counters()
        return Response(services.metrics.render(counters), media_type=_METRICS_TYPE)

    return metrics


def _vllm_version() -> str:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


ROUTES = (
    Route(
        path="/health",
        methods=("GET", "HEAD"),
        serve=_health,
        summary="Whether every shard serves",
        answers=(Health,),
        unready="Not every shard serves; `reason` says why.",
    ),
    Route(
        path="/ping",
        methods=("GET", "HEAD", "POST"),
        serve=_ping,
        summary="Whether the gateway answers",
    ),
    Route(
        path="/version",
        methods=("GET", "HEAD"),
        serve=_version,
        summary="Versions",
        answers=(Version,),
    ),
    Route(
        path="/metrics",
        methods=("GET", "HEAD"),
        serve=_metrics,
        summary="Prometheus metrics, as text",
    ),
)
