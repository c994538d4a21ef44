"""Statistics of samples, and sampling that treats all sides alike."""

import statistics
from collections.abc import Callable, Sequence

_BURST = 8
"""Calls one side makes in a row."""


def median(samples: Sequence[float]) -> float:
    """The middle sample."""
    return statistics.median(samples)


def mean(samples: Sequence[float]) -> float:
    """The arithmetic mean."""
    return statistics.fmean(samples)


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that `percent` of all samples do not exceed."""
    ordered = sorted(samples)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def interleaved(
    sides: Sequence[Callable[[], float]], rounds: int, *, warm_up: int = 2
) -> list[list[float]]:
    """Call each side in turn, in short bursts, so that noise hits all alike.

    A server is used in runs of calls; one call at a time would measure each side with the caches
    the other one left.

    Args:
        sides: Each makes one measurement and returns it.
        rounds: Samples per side.
        warm_up: Calls before, whose samples are dropped.

    Returns:
        The samples of each side.
    """
    samples: list[list[float]] = [[] for _ in sides]
    for side in sides:
        for _ in range(warm_up):
            side()
    for begun in range(0, rounds, _BURST):
        for side, kept in zip(sides, samples, strict=True):
            kept += [side() for _ in range(min(_BURST, rounds - begun))]
    return samples
