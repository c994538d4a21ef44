"""What an operator can see at `/metrics`."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.engines.pool import Engines
from gateway.metrics.engines import EngineCollector
from gateway.metrics.live import LiveCollector
from shards.messages.counters import TableCounters
from shards.pool.pool import Pool, ShardStats
from shards.pool.sessions import Sessions

_DURATION_BUCKETS_S = (
    *(0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064),
    *(0.128, 0.256, 0.512, 1.0, 2.0, 4.0, 8.0, 16.0),
)
_BYTES_BUCKETS = tuple(float(256 * 4**power) for power in range(10))


class _PoolCollector(Collector):
    """Reads the pool at scrape time, so calls pay nothing for it."""

    def __init__(self, pools: dict[str, Pool]) -> None:
        self._pools = pools

    def collect(self) -> Iterable[Metric]:
        up = GaugeMetricFamily(
            "derender_shard_up", "1 while the gateway can reach the shard.", labels=["shard"]
        )
        in_flight = GaugeMetricFamily(
            "derender_shard_calls_in_flight",
            "Calls a shard has not answered yet, the one it works on included.",
            labels=["shard"],
        )
        restarts = CounterMetricFamily(
            "derender_shard_restarts",
            "Times a shard's process was replaced since the gateway started.",
            labels=["shard"],
        )
        resent = CounterMetricFamily(
            "derender_calls_resent",
            "Calls sent again because the shard ended before it answered.",
            labels=["shard"],
        )
        for label, stats in self._stats():
            up.add_metric(label, float(stats.connected))
            in_flight.add_metric(label, stats.in_flight)
            restarts.add_metric(label, stats.restarts)
            resent.add_metric(label, stats.resent)
        return _each(up, in_flight, restarts, resent)

    def _stats(self) -> Iterator[tuple[list[str], ShardStats]]:
        for prefix, pool in self._pools.items():
            for stats in pool.stats():
                yield [f"{prefix}{stats.shard}"], stats


class _SessionCollector(Collector):
    """Reads the streams of the front door at scrape time."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def collect(self) -> Iterable[Metric]:
        streams = GaugeMetricFamily(
            "derender_front_door_streams", "Streams of the front door being served."
        )
        streams.add_metric([], self._sessions.count)
        reopened = CounterMetricFamily(
            "derender_front_door_reopened",
            "Streams of the front door opened anew because their shard was replaced.",
        )
        reopened.add_metric([], self._sessions.reopened)
        return _each(streams, reopened)


def _each(*metrics: Metric) -> Iterator[Metric]:
    yield from metrics


class Metrics:
    """Counters of one gateway process, in a registry of their own."""

    def __init__(self, pool: Pool, render_pool: Pool | None = None) -> None:
        """Register everything."""
        self._registry = CollectorRegistry()
        pools = {"": pool} if render_pool is None else {"": pool, "render-": render_pool}
        self._registry.register(_PoolCollector(pools))
        self._live = LiveCollector()
        self._registry.register(self._live)
        self._count_requests()
        self._count_tokens()

    def _count_requests(self) -> None:
        endpoint = ["endpoint", "mode"]
        self._requests = Counter(
            "derender_requests",
            "Requests answered, by endpoint, mode (one_shot, stream, render, unknown) and status.",
            [*endpoint, "status"],
            registry=self._registry,
        )
        self._duration = Histogram(
            "derender_request_duration_seconds",
            "From the first byte of a request to its complete answer.",
            endpoint,
            buckets=_DURATION_BUCKETS_S,
            registry=self._registry,
        )
        self._body_bytes = Histogram(
            "derender_request_body_bytes",
            "Size of request bodies that were read.",
            ["endpoint"],
            buckets=_BYTES_BUCKETS,
            registry=self._registry,
        )
        self._refusals = Counter(
            "derender_refusals",
            "Requests answered with an error, by its stable code.",
            ["reason"],
            registry=self._registry,
        )
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._known_bodies: dict[str, Histogram] = {}

    def _count_tokens(self) -> None:
        self._first_token = Histogram(
            "derender_time_to_first_token_seconds",
            "From the first byte of a streamed request to the first event of its answer.",
            ["endpoint"],
            buckets=_DURATION_BUCKETS_S,
            registry=self._registry,
        )
        self._tokens = Counter(
            "derender_streamed_tokens",
            "Tokens taken from engines' streams.",
            ["endpoint"],
            registry=self._registry,
        )
        self._known_tokens: dict[str, Counter] = {}

    def watch_engines(self, engines: Engines, sessions: Sessions) -> None:
        """Show the engines and streams of the front door too."""
        self._registry.register(EngineCollector(engines))
        self._registry.register(_SessionCollector(sessions))

    def first_token(self, endpoint: str, seconds: float) -> None:
        """Note when the first event of a stream went out."""
        self._first_token.labels(endpoint).observe(seconds)

    def generated(self, endpoint: str, tokens: int) -> None:
        """Count tokens an engine streamed."""
        child = self._known_tokens.get(endpoint)
        if child is None:
            child = self._known_tokens[endpoint] = self._tokens.labels(endpoint)
        child.inc(tokens)

    def answered(self, endpoint: str, mode: str, status: int, seconds: float) -> None:
        """Count one answer."""
        key = (endpoint, mode, status)
        children = self._known.get(key)
        if children is None:
            children = (
                self._requests.labels(endpoint, mode, str(status)),
                self._duration.labels(endpoint, mode),
            )
            self._known[key] = children
        children[0].inc()
        children[1].observe(seconds)

    def body_read(self, endpoint: str, size: int) -> None:
        """Count one body."""
        child = self._known_bodies.get(endpoint)
        if child is None:
            child = self._known_bodies[endpoint] = self._body_bytes.labels(endpoint)
        child.observe(size)

    def refused(self, reason: str) -> None:
        """Count one error answer."""
        self._refusals.labels(reason).inc()

    def render(self, tables: dict[int, TableCounters]) -> bytes:
        """The whole in Prometheus' text format.

        Args:
            tables: What each shard counted of its live streams.
        """
        self._live.tables = tables
        return generate_latest(self._registry)
