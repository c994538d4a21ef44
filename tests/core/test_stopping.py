"""Stop strings cut a stream as the engine's detokenizer cuts it, wherever chunks and state end."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm import SamplingParams
from vllm.v1.engine.detokenizer import BaseIncrementalDetokenizer, check_stop_strings

from core.protocol.rules import EndTokens, OutputRules
from core.protocol.stream_state import StopWindow
from core.text.stopping import StopMatch, StopMatcher, find_stop, split_stop_token
from tests.core.generation import Draw

ENDS = EndTokens(9, frozenset({9, 8}))


class Spelled(BaseIncrementalDetokenizer):  # type: ignore[misc]
    """The engine's detokenizer over tokens whose texts are given."""

    def __init__(self, request: Any, pieces: list[str]) -> None:
        super().__init__(request)
        self._pieces = pieces

    def decode_next(self, next_token_id: int) -> str:
        return self._pieces[next_token_id]


class Case(NamedTuple):
    """A generation, cut into chunks."""

    rules: OutputRules
    pieces: list[str]
    """Text of each token."""
    sizes: list[int]
    """Tokens per chunk."""
    ends_on_token: bool
    """The engine reports that the last token stopped the generation."""


@st.composite
def cases(draw: Draw) -> Case:
    pieces = draw(st.lists(st.text("abc", max_size=3), min_size=1, max_size=14))
    stops = draw(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
    sizes, left = [], len(pieces)
    while left:
        sizes.append(min(left, draw(st.integers(1, 5))))
        left -= sizes[-1]
    rules = OutputRules(
        stop=tuple(stops),
        min_tokens=draw(st.integers(0, 6)),
        include_stop_str_in_output=draw(st.booleans()),
    )
    return Case(rules, pieces, sizes, draw(st.booleans()))


def engine_steps(case: Case) -> list[tuple[str, str | None, int]]:
    """Text, matched string and tokens kept of each chunk, up to the one that matches."""
    rules = case.rules
    params = SamplingParams(
        stop=list(rules.stop),
        min_tokens=rules.min_tokens,
        include_stop_str_in_output=rules.include_stop_str_in_output,
        max_tokens=100,
    )
    decoder = Spelled(SimpleNamespace(sampling_params=params), case.pieces)
    steps, start = [], 0
    for size in case.sizes:
        ids = list(range(start, start + size))
        start += size
        last = start == len(case.pieces)
        before = len(decoder.token_ids)
        matched = decoder.update(ids, last and case.ends_on_token)
        text = decoder.get_next_output_text(last or matched is not None, True)
        steps.append((text, matched, len(decoder.token_ids) - before))
        if matched is not None:
            break
    return steps


def our_steps(case: Case, resumed: bool) -> list[tuple[str, str | None, int]]:
    """The same of ours; resumed: the window travels as JSON between the chunks."""
    matcher, steps, start = StopMatcher(case.rules, StopWindow()), [], 0
    for size in case.sizes:
        pieces = case.pieces[start : start + size]
        start += size
        last = start == len(case.pieces)
        if last and case.ends_on_token and not case.rules.include_stop_str_in_output:
            pieces = pieces[:-1]
        step = matcher.feed(pieces, size, finished=last)
        steps.append((step.text, step.matched, step.kept))
        if step.matched is not None:
            assert matcher.stopped
            break
        if resumed:
            carried = msgspec.json.decode(msgspec.json.encode(matcher.window), type=StopWindow)
            matcher = StopMatcher(case.rules, carried)
    return steps


@given(case=cases())
def test_matcher_equals_the_engine(case: Case) -> None:
    assert our_steps(case, resumed=False) == engine_steps(case)


@given(case=cases())
def test_a_carried_window_changes_nothing(case: Case) -> None:
    assert our_steps(case, resumed=True) == engine_steps(case)


@given(case=cases())
def test_the_window_is_bounded(case: Case) -> None:
    matcher, start = StopMatcher(case.rules, StopWindow()), 0
    for size in case.sizes:
        matcher.feed(case.pieces[start : start + size], size, finished=False)
        start += size
        assert len(matcher.window.tail) <= max(map(len, case.rules.stop))


@given(
    text=st.text("abc", max_size=12),
    fresh=st.integers(0, 14),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
)
def test_find_stop_equals_the_engine(text: str, fresh: int, stops: list[str]) -> None:
    fresh = min(fresh, len(text))
    theirs = check_stop_strings(text, fresh, stops, include_in_output=False)
    ours = find_stop(text, fresh, stops)
    assert (ours and (ours.stop, ours.start)) == theirs


def test_the_first_in_the_list_wins_a_tie() -> None:
    assert find_stop("xab", 3, ["ab", "b"]) == StopMatch("ab", 1, 3)


@pytest.mark.parametrize(
    ("ids", "finish", "reported", "rules", "expected"),
    [
        pytest.param([1, 9], "stop", None, OutputRules(), ([1], None), id="primary end"),
        pytest.param([1, 8], "stop", None, OutputRules(), ([1], 8), id="other end"),
        pytest.param([1, 2], "stop", None, OutputRules(), ([1, 2], None), id="no end"),
        pytest.param([1, 9], "length", None, OutputRules(), ([1, 9], None), id="length"),
        pytest.param([1, 9], None, None, OutputRules(), ([1, 9], None), id="running"),
        pytest.param([1, 9], "stop", "x", OutputRules(), ([1, 9], "x"), id="stop string"),
        pytest.param([1, 5], "stop", 5, OutputRules(), ([1], 5), id="reported token"),
        pytest.param([1, 6], "stop", 5, OutputRules(), ([1, 6], 5), id="reported another"),
        pytest.param([], "stop", None, OutputRules(), ([], None), id="empty"),
        pytest.param(
            [1, 9], "stop", None, OutputRules(ignore_eos=True), ([1, 9], None), id="ignored end"
        ),
        pytest.param(
            [1, 7],
            "stop",
            None,
            OutputRules(ignore_eos=True, stop_token_ids=frozenset({7})),
            ([1], 7),
            id="asked-for token",
        ),
        pytest.param(
            [1, 9],
            "stop",
            None,
            OutputRules(include_stop_str_in_output=True),
            ([1, 9], None),
            id="included",
        ),
    ],
)
def test_the_stop_token_is_left_out(
    ids: list[int],
    finish: str | None,
    reported: int | str | None,
    rules: OutputRules,
    expected: tuple[list[int], int | str | None],
) -> None:
    assert split_stop_token(ids, finish, reported, rules, ENDS) == expected
