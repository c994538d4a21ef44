"""The table of live streams: its bounds, its order, its counters, and that nothing is left over."""

import random
from typing import Any, NamedTuple, cast

import pytest

from core.derender.contexts import StreamContext
from core.derender.live.stream import LiveStream
from core.derender.live.streams import Cause, Outcome
from shards.messages.orders import TableLimits
from shards.shard.stream_table import StreamTable


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class _Stream(NamedTuple):
    """What the table asks of a live stream."""

    identity: str
    context: StreamContext
    tokens: int
    secret: str


def context(prompt: bytes = b"[1]", request: bytes = b"{}") -> StreamContext:
    return StreamContext((prompt, request), [1], cast(Any, None))


def live(
    identity: str, tokens: int = 1, secret: str = "", where: StreamContext | None = None
) -> LiveStream:
    return cast(LiveStream, _Stream(identity, where or context(), tokens, secret))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def table(clock: Clock, successor: bool = False, **limits: Any) -> StreamTable:
    return StreamTable(TableLimits(**limits), clock, successor=successor)


def held(kept: StreamTable, *names: str) -> list[str]:
    return [name for name in names if kept.find(name, context()) is not None]


def sizes(kept: StreamTable) -> set[int]:
    """Entries of every map that has one per stream held."""
    maps = (kept._streams, kept._used_at, kept._sizes)
    return {len(entries) for entries in maps}


def test_the_least_recently_used_goes_first(clock: Clock) -> None:
    kept = table(clock, streams=2)
    a, b = live("a"), live("b")
    for stream in (a, b, a, live("c")):
        kept.keep(stream)
    assert held(kept, "a", "b", "c") == ["a", "c"]
    assert kept.counters().evictions == {"streams": 1}
    assert kept.counters().streams == 2


def test_tokens_are_bounded_and_the_last_one_used_stays(clock: Clock) -> None:
    kept = table(clock, tokens=100)
    kept.keep(live("a", 40))
    kept.keep(live("b", 40))
    kept.keep(live("c", 40))
    assert held(kept, "a", "b", "c") == ["b", "c"]
    assert kept.counters().tokens == 80
    kept.keep(live("d", 5000))
    assert held(kept, "a", "b", "c", "d") == ["d"]
    assert kept.counters().evictions == {"tokens": 3}
    assert (kept.counters().streams, kept.counters().tokens) == (1, 5000)


def test_a_stream_that_grows_is_counted_as_it_is(clock: Clock) -> None:
    class Growing:
        identity, context, secret, tokens = "a", context(), "", 10

    stream = cast(Any, Growing())
    kept = table(clock, tokens=100)
    kept.keep(live("b", 50))
    kept.keep(stream)
    stream.tokens = 30
    kept.keep(stream)
    assert kept.counters().tokens == 80
    stream.tokens = 60
    kept.keep(stream)
    assert (kept.counters().tokens, held(kept, "a", "b")) == (60, ["a"])
    stream.tokens = 70
    kept.drop(stream)
    assert (kept.counters().tokens, sizes(kept)) == (0, {0})


def test_idle_streams_go(clock: Clock) -> None:
    kept = table(clock, ttl_s=10.0)
    a = live("a")
    kept.keep(a)
    clock.now += 6
    kept.keep(live("b"))
    clock.now += 4
    kept.expire()
    assert held(kept, "a", "b") == ["a", "b"]
    clock.now += 0.5
    kept.expire()
    assert held(kept, "a", "b") == ["b"]
    clock.now += 6
    kept.expire()
    assert kept.counters().evictions == {"idle": 2}
    assert sizes(kept) == {0}


def test_use_keeps_a_stream_alive(clock: Clock) -> None:
    kept = table(clock, ttl_s=10.0)
    a = live("a")
    for _ in range(5):
        kept.keep(a)
        clock.now += 9
        kept.expire()
    assert held(kept, "a") == ["a"]


def test_a_table_of_none_keeps_none(clock: Clock) -> None:
    kept = table(clock, streams=0)
    kept.keep(live("a"))
    assert held(kept, "a") == []
    assert kept.new_secret() == ""
    assert sizes(kept) == {0}


def test_a_nameless_stream_is_not_kept(clock: Clock) -> None:
    kept = table(clock)
    kept.keep(live(""))
    assert sizes(kept) == {0}


def test_secrets_are_128_random_bits(clock: Clock) -> None:
    kept = table(clock)
    drawn = {kept.new_secret() for _ in range(100)}
    assert len(drawn) == 100
    assert {len(bytes.fromhex(secret)) for secret in drawn} == {16}


def test_a_checkpoint_needs_the_exact_secret(clock: Clock) -> None:
    kept = table(clock)
    secret = kept.new_secret()
    stream = live("a", secret=secret)
    kept.keep(stream)
    assert kept.find_by_checkpoint("a", secret) is stream
    for wrong in ("", secret[:-1], secret + "0", secret[::-1], secret.upper() + "x", "0" * 32):
        assert kept.find_by_checkpoint("a", wrong) is None
    assert kept.find_by_checkpoint("b", secret) is None
    kept.drop(stream)
    assert kept.find_by_checkpoint("a", secret) is None


def test_a_stream_that_issued_no_checkpoint_has_none(clock: Clock) -> None:
    kept = table(clock)
    kept.keep(live("a"))
    assert kept.find_by_checkpoint("a", kept.new_secret()) is None


def test_one_identity_in_two_contexts_is_two_streams(clock: Clock) -> None:
    kept = table(clock)
    here, there = context(), context(b"[2]")
    first, second = live("a", 1, "1" * 32, here), live("a", 2, "2" * 32, there)
    kept.keep(first)
    kept.keep(second)
    assert kept.find("a", here) is first
    assert kept.find("a", there) is second
    # A checkpoint names the one used last.
    assert kept.find_by_checkpoint("a", "2" * 32) is second
    assert kept.find_by_checkpoint("a", "1" * 32) is None
    kept.keep(first)
    assert kept.find_by_checkpoint("a", "1" * 32) is first
    kept.drop(second)
    assert kept.find_by_checkpoint("a", "1" * 32) is first
    kept.drop(first)
    assert (kept._by_identity, sizes(kept)) == ({}, {0})


def test_prompt_and_request_do_not_run_into_each_other(clock: Clock) -> None:
    kept = table(clock)
    kept.keep(live("a", where=context(b"[1]x", b"{}")))
    assert kept.find("a", context(b"[1]", b"x{}")) is None


def test_a_colliding_hash_never_gives_another_contexts_stream(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shards.shard.stream_table.xxhash.xxh3_64_intdigest", lambda _: 7)
    kept = table(clock)
    here, there = live("a", 1), live("a", 2, where=context(b"[2]"))
    kept.keep(here)
    assert kept.find("a", there.context) is None
    kept.keep(there)
    assert kept.find("a", there.context) is there
    assert kept.find("a", here.context) is None
    assert kept.counters().tokens == 2
    kept.drop(here)
    assert kept.find("a", there.context) is there
    assert sizes(kept) == {1}


def test_a_stream_that_replaces_one_takes_its_place(clock: Clock) -> None:
    kept = table(clock)
    old, new = live("a", 10), live("a", 3)
    kept.keep(old)
    kept.keep(new)
    assert kept.find("a", context()) is new
    assert (kept.counters().streams, kept.counters().tokens) == (1, 3)
    # What was replaced cannot take its successor along.
    kept.drop(old)
    assert kept.find("a", context()) is new
    kept.drop(new)
    assert sizes(kept) == {0}
    assert kept.counters().evictions == {}


def test_causes(clock: Clock) -> None:
    kept = table(clock, streams=1)
    assert kept.cause("a", context()) is Cause.FIRST_SIGHT
    kept.keep(live("a"))
    assert kept.cause("a", context(b"[2]")) is Cause.CONTEXT_CHANGED
    kept.keep(live("b"))
    assert kept.cause("a", context()) is Cause.EVICTED
    assert kept.cause("a", context(b"[2]")) is Cause.FIRST_SIGHT
    later = table(clock, successor=True, streams=1)
    assert later.cause("a", context()) is Cause.RESTARTED
    later.keep(live("a"))
    later.keep(live("b"))
    assert later.cause("a", context()) is Cause.EVICTED


def test_calls_are_counted(clock: Clock) -> None:
    kept = table(clock)
    kept.count(Outcome.FIRST)
    kept.count(Outcome.HIT)
    kept.count(Outcome.HIT)
    kept.count(Outcome.CATCH_UP, None, 4)
    kept.count(Outcome.REPLAY, Cause.EVICTED, 10)
    counted = kept.counters()
    assert counted.outcomes == {"first": 1, "hit": 2, "catch_up": 1, "replay": 1}
    assert counted.replays == {"evicted": 1}
    assert counted.replayed_tokens == 14


def test_nothing_is_left_over_after_much_use(clock: Clock) -> None:
    rng = random.Random(1)
    kept = table(clock, streams=8, tokens=200, ttl_s=50.0)
    contexts = [context(b"[%d]" % number) for number in range(3)]
    made: list[LiveStream] = []
    for number in range(4_000):
        if made and rng.random() < 0.5:
            stream = rng.choice(made[-20:])
        else:
            name = f"{rng.randrange(number // 4 + 1)}"
            stream = live(name, rng.randrange(60), f"{number:032x}", rng.choice(contexts))
            made.append(stream)
        (kept.drop if rng.random() < 0.1 else kept.keep)(stream)
        clock.now += rng.random()
        if rng.random() < 0.1:
            kept.expire()
        counted = kept.counters()
        assert sizes(kept) == {counted.streams}
        assert counted.streams <= 8
        assert counted.tokens <= 200
        assert counted.tokens == sum(each.tokens for each in kept._streams.values())
        assert len(kept._by_identity) <= counted.streams
        assert len(kept._gone) <= 8 * 4
    clock.now += 100
    kept.expire()
    assert (sizes(kept), kept._by_identity, kept.counters().tokens) == ({0}, {}, 0)
