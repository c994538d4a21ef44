"""What a shard counts, as data the gateway can show."""

import msgspec


class TableCounters(msgspec.Struct, kw_only=True):
    """What happened in a shard's table of live streams since the shard began."""

    outcomes: dict[str, int] = {}
    """Calls by how they found their stream: `core.derender.live.streams.Outcome`."""
    replays: dict[str, int] = {}
    """Streams rebuilt, by cause: `core.derender.live.streams.Cause`."""
    evictions: dict[str, int] = {}
    """Streams let go, by cause: `streams`, `tokens` or `idle`."""
    replayed_tokens: int = 0
    streams: int = 0
    """Live streams held."""
    tokens: int = 0
    """Prompt and output tokens of those."""
    sessions: int = 0
    """Requests of the front door being streamed."""


counters_encoder = msgspec.json.Encoder()
counters_decoder = msgspec.json.Decoder(TableCounters)
