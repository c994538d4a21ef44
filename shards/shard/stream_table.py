"""The table of live streams of one shard: bounded in streams, tokens and idle time.

What is in the table never shows in an answer; it only decides how much has to be replayed. The
least recently used stream goes first.
"""

import hmac
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable

import xxhash

from core.derender.contexts import StreamContext
from core.derender.live.stream import LiveStream
from core.derender.live.streams import Cause, Outcome
from shards.messages.counters import TableCounters
from shards.messages.orders import TableLimits

_REMEMBERED = 4
"""Streams remembered by name after they went, per stream the table may hold."""

_Key = tuple[str, int]


class StreamTable:
    """Keeps live streams for `core.derender.live.answer`; used by one thread."""

    def __init__(
        self, limits: TableLimits, clock: Callable[[], float], *, successor: bool = False
    ) -> None:
        """Start empty.

        Args:
            limits: The bounds.
            clock: Seconds, monotonic.
            successor: The shard replaced one that ended.
        """
        self._limits = limits
        self._clock = clock
        self._successor = successor
        self._streams: OrderedDict[_Key, LiveStream] = OrderedDict()
        self._used_at: dict[_Key, float] = {}
        self._sizes: dict[_Key, int] = {}
        self._by_identity: dict[str, _Key] = {}
        self._gone: OrderedDict[_Key, None] = OrderedDict()
        self._tokens = 0
        self._outcomes: Counter[str] = Counter()
        self._replays: Counter[str] = Counter()
        self._evictions: Counter[str] = Counter()
        self._replayed_tokens = 0

    def find(self, identity: str, context: StreamContext) -> LiveStream | None:
        """The live stream of an identity and context."""
        live = self._streams.get(_key(identity, context))
        return live if live is not None and live.context.key == context.key else None

    def find_by_checkpoint(self, identity: str, secret: str) -> LiveStream | None:
        """The live stream that issued a checkpoint."""
        key = self._by_identity.get(identity)
        live = self._streams.get(key) if key else None
        known = live is not None and hmac.compare_digest(live.secret, secret)
        return live if known else None

    def keep(self, live: LiveStream) -> None:
        """Hold a stream, or note that it was used and grew; others may have to go."""
        if not live.identity or not self._limits.streams:
            return
        key = _key(live.identity, live.context)
        if self._streams.get(key) is not live:
            self._forget(key)
        self._streams[key] = live
        self._streams.move_to_end(key)
        self._used_at[key] = self._clock()
        self._by_identity[live.identity] = key
        self._tokens += live.tokens - self._sizes.get(key, 0)
        self._sizes[key] = live.tokens
        self._make_room()

    def drop(self, live: LiveStream) -> None:
        """Forget a stream."""
        key = _key(live.identity, live.context)
        if self._streams.get(key) is live:
            self._forget(key)

    def cause(self, identity: str, context: StreamContext) -> Cause:
        """Why a stream with a history is not held in this context."""
        if _key(identity, context) in self._gone:
            return Cause.EVICTED
        if identity in self._by_identity:
            return Cause.CONTEXT_CHANGED
        return Cause.RESTARTED if self._successor else Cause.FIRST_SIGHT

    def new_secret(self) -> str:
        """128 random bits as hex digits; empty where nothing is kept."""
        return secrets.token_hex(16) if self._limits.streams else ""

    def count(self, outcome: Outcome, cause: Cause | None = None, replayed_tokens: int = 0) -> None:
        """Note how a call found its stream."""
        self._outcomes[outcome.value] += 1
        if cause is not None:
            self._replays[cause.value] += 1
        self._replayed_tokens += replayed_tokens

    def expire(self) -> None:
        """Let go of streams that were idle too long."""
        deadline = self._clock() - self._limits.ttl_s
        while self._streams and self._used_at[oldest := next(iter(self._streams))] < deadline:
            self._evict(oldest, "idle")

    def counters(self) -> TableCounters:
        """What happened so far, and what is held."""
        return TableCounters(
            outcomes=dict(self._outcomes),
            replays=dict(self._replays),
            evictions=dict(self._evictions),
            replayed_tokens=self._replayed_tokens,
            streams=len(self._streams),
            tokens=self._tokens,
        )

    def _make_room(self) -> None:
        """Evict until the bounds hold; the stream used last stays, however large."""
        while len(self._streams) > self._limits.streams:
            self._evict(next(iter(self._streams)), "streams")
        while self._tokens > self._limits.tokens and len(self._streams) > 1:
            self._evict(next(iter(self._streams)), "tokens")

    def _evict(self, key: _Key, cause: str) -> None:
        self._evictions[cause] += 1
        self._forget(key)
        self._gone[key] = None
        while len(self._gone) > self._limits.streams * _REMEMBERED:
            self._gone.popitem(last=False)

    def _forget(self, key: _Key) -> None:
        if self._streams.pop(key, None) is None:
            return
        self._tokens -= self._sizes.pop(key)
        del self._used_at[key]
        if self._by_identity.get(key[0]) == key:
            del self._by_identity[key[0]]


def _key(identity: str, context: StreamContext) -> _Key:
    prompt, request = context.key
    return identity, xxhash.xxh3_64_intdigest(b"%d:%b%b" % (len(prompt), prompt, request))
