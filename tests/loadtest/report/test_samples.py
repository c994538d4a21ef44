"""Statistics, and how sides are sampled."""

from loadtest.report.samples import interleaved, percentile


def test_percentile_is_a_sample() -> None:
    samples = [float(value) for value in range(1, 101)]
    assert percentile(samples, 99) == 99.0
    assert percentile(samples, 50) == 50.0
    assert percentile([7.0], 99) == 7.0


def test_sides_are_sampled_in_turn_in_bursts() -> None:
    calls: list[str] = []

    def side(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    samples = interleaved([lambda: side("a"), lambda: side("b")], 10, warm_up=1)
    assert calls == ["a", "b", *"a" * 8, *"b" * 8, *"a" * 2, *"b" * 2]
    assert [len(kept) for kept in samples] == [10, 10]
    assert samples[0][:2] == [3.0, 4.0]
    assert samples[1][-1] == 22.0
