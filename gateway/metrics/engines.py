"""What an operator can see of the engines."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.engines.pool import Engines


class EngineCollector(Collector):
    """Reads the engines at scrape time, so requests pay nothing for it."""

    def __init__(self, engines: Engines) -> None:
        """Read these."""
        self._engines = engines

    def collect(self) -> Iterable[Metric]:
        """The metrics of every engine."""
        return self._each()

    def _each(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "derender_engine_up",
            "1 while requests go to the engine, 0 while it is ejected for failing.",
            labels=["engine"],
        )
        in_flight = GaugeMetricFamily(
            "derender_engine_requests_in_flight",
            "Requests sent to an engine that have not ended.",
            labels=["engine"],
        )
        requests = CounterMetricFamily(
            "derender_engine_requests",
            "Requests sent to an engine, by how they ended: finished (read to the end), aborted (by"
            " the caller, or cut at a stop string), refused (4xx or 503), failed (broke off, or no"
            " answer), timed_out, unreachable (no connection).",
            labels=["engine", "outcome"],
        )
        ejections = CounterMetricFamily(
            "derender_engine_ejections",
            "Times an engine was ejected for failing; failing on trial counts again.",
            labels=["engine"],
        )
        retries = CounterMetricFamily(
            "derender_engine_retries",
            "Requests sent once more, to another engine or over a new connection, because nothing"
            " or a 502, 503 or 504 came back.",
        )
        stats = self._engines.stats()
        for engine in stats.engines:
            up.add_metric([engine.url], engine.up)
            in_flight.add_metric([engine.url], engine.in_flight)
            ejections.add_metric([engine.url], engine.ejections)
            for outcome, count in engine.outcomes.items():
                requests.add_metric([engine.url, outcome.value], count)
        retries.add_metric([], stats.retries)
        yield from (up, in_flight, requests, ejections, retries)
