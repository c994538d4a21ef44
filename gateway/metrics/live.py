"""What an operator can see of the shards' live streams."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shards.messages.counters import TableCounters


class LiveCollector(Collector):
    """Shows the counters of the last scrape.

    Attributes:
        tables: Counters by shard; a shard that did not answer in time is missing.
    """

    def __init__(self) -> None:
        """Begin with nothing to show."""
        self.tables: dict[int, TableCounters] = {}

    def collect(self) -> Iterable[Metric]:
        """The metrics of every shard."""
        return self._each()

    def _each(self) -> Iterator[Metric]:
        yield self._labelled(
            "derender_stream_calls",
            "Calls of streams with a parser, by how the shard found the stream: hit (live and up to"
            " date), catch_up, retry, replay (rebuilt from the carried history), first.",
            "outcome",
            lambda table: table.outcomes,
        )
        yield self._labelled(
            "derender_stream_replays",
            "Streams rebuilt from the history the client carries, by cause.",
            "cause",
            lambda table: table.replays,
        )
        yield self._labelled(
            "derender_live_stream_evictions",
            "Live streams let go, by the bound that was reached: streams, tokens, idle.",
            "cause",
            lambda table: table.evictions,
        )
        replayed = CounterMetricFamily(
            "derender_replayed_tokens",
            "Tokens parsed again to rebuild or catch up streams.",
            labels=["shard"],
        )
        streams = GaugeMetricFamily(
            "derender_live_streams", "Live streams a shard holds.", labels=["shard"]
        )
        tokens = GaugeMetricFamily(
            "derender_live_tokens",
            "Prompt and output tokens of the live streams a shard holds.",
            labels=["shard"],
        )
        for shard, table in self.tables.items():
            replayed.add_metric([str(shard)], table.replayed_tokens)
            streams.add_metric([str(shard)], table.streams)
            tokens.add_metric([str(shard)], table.tokens)
        yield from (replayed, streams, tokens)

    def _labelled(
        self, name: str, text: str, label: str, read: Callable[[TableCounters], dict[str, int]]
    ) -> Metric:
        family = CounterMetricFamily(name, text, labels=["shard", label])
        for shard, table in self.tables.items():
            for value, count in read(table).items():
                family.add_metric([str(shard), value], count)
        return family
