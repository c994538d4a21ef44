"""The law of live streams: an answer never depends on how its stream was found.

Random streams are driven through tables too small for them, with repeated, lost and abandoned
calls, restarts, other replicas, vLLM's own server in between, states spelled otherwise, and broken
ones. Every answer equals, byte for byte, that of a server that keeps nothing and replays.
"""

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.calling import Setup
from tests.equivalence.drive import Run

DEMO = [
    Setup("demo", "hermes", "qwen3"),
    Setup("demo", "qwen3_coder", "qwen3"),
    Setup("demo", "hermes", "deepseek_r1"),
    Setup("demo", None, "qwen3"),
    Setup("demo", "hermes", None),
]
LARGE = [Setup("qwen", "qwen3_coder", "qwen3"), Setup("deepseek", "hermes", "deepseek_r1")]
ROUNDS = 100
# The long profile takes minutes per pair of parsers.
pytestmark = pytest.mark.timeout(1800)

totals: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def every_way_was_taken() -> Iterator[None]:
    """The runs met each way a stream is found, and say how often."""
    yield
    print("\n" + ", ".join(f"{key} {totals[key]}" for key in sorted(totals)))
    if totals["compared"] < 1000:
        return
    outcomes = {"first", "hit", "catch_up", "retry", "replay"}
    causes = {"first_sight", "evicted", "restarted", "branched", "context_changed"}
    evictions = {"streams", "tokens", "idle"}
    met = {key for key, count in totals.items() if count}
    assert outcomes | causes | evictions <= met


@pytest.mark.parametrize("setup", DEMO, ids=str)
@given(seed=st.integers(0, 2**48))
def test_every_answer_is_the_replayed_one(setup: Setup, seed: int) -> None:
    totals.update(Run(setup, random.Random(seed)).drive(ROUNDS))


@pytest.mark.parametrize("setup", LARGE, ids=str)
@given(seed=st.integers(0, 2**48))
def test_with_large_vocabularies(setup: Setup, seed: int) -> None:
    totals.update(Run(setup, random.Random(seed)).drive(ROUNDS // 4))
