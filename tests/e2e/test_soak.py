"""A small soak: streams through a table too small for them leave nothing behind."""

from loadtest.bench.soak import SoakPlan, SoakResult, SoakSample, soak
from tests.e2e.streams import Counts
from tests.serving import Service


def test_a_small_table_stays_small(second: Service) -> None:
    plan = SoakPlan(streams=500, samples=5, growth_mb=8.0)
    before = Counts(second.url)
    told: list[SoakSample] = []
    shard = second.pid_of("derender: shard 0")
    result = soak(second.url, lambda: [shard], plan, told.append)
    assert result.complaints(plan) == []
    assert result.samples == told
    assert told[-1].live == (plan.table,)
    counts = Counts(second.url)
    # Every kind of stream was met.
    for outcome in ("first", "hit", "retry", "replay"):
        assert counts.calls(outcome) > before.calls(outcome), outcome
    assert counts.replays("evicted") > before.replays("evicted")


def test_what_leaks_is_said() -> None:
    flat, grown = SoakSample(1, (10.0,), (64,)), SoakSample(2, (15.0,), (65,))
    from_leak = SoakResult([flat, flat, grown], in_flight=2).complaints(SoakPlan())
    assert [line.split()[0:2] for line in from_leak] == [
        ["shard", "0"],
        ["a", "shard"],
        ["2", "calls"],
    ]
