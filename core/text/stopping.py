"""Where an answer ends: the stop token that is left out, and the stop string that cuts the text.

Mirrors the engine: a stop token ends the token list but not the text; a stop string cuts the text
although the tokens run past it. In a stream, text that may be the start of a stop string is held
back.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from core.protocol.rules import EndTokens, OutputRules
from core.protocol.stream_state import StopWindow


class StopMatch(NamedTuple):
    """A stop string in a text: `text[start:end]`."""

    stop: str
    start: int
    end: int


class StopStep(NamedTuple):
    """What one chunk yields when stop strings are looked for."""

    text: str
    """Text that can be sent."""
    matched: str | None
    """The stop string completed in this chunk."""
    kept: int
    """Tokens of the chunk up to and including the one that completed it; all of them otherwise."""


def split_stop_token(
    ids: Sequence[int],
    finish_reason: str | None,
    stop_reason: int | str | None,
    rules: OutputRules,
    ends: EndTokens,
) -> tuple[Sequence[int], int | str | None]:
    """Leave out the token that ended the generation.

    An integer `stop_reason` names it; null is the primary end token on current engines, while
    older ones never report it, so the last ID is compared with all that may have stopped it.

    Returns:
        The IDs to decode, and the stop reason: the token where the comparison found it.
    """
    if finish_reason != "stop" or isinstance(stop_reason, str):
        return ids, stop_reason
    stopped, reported = _stopped_by(ids[-1] if ids else None, stop_reason, rules, ends)
    if not ids or not stopped or rules.include_stop_str_in_output:
        return ids, reported
    return ids[:-1], reported


def find_stop(text: str, fresh: int, stops: Sequence[str]) -> StopMatch | None:
    """The stop string that completes first within the last `fresh` characters of the text.

    The first in the list wins a tie. None where nothing matches.
    """
    best: StopMatch | None = None
    for stop in stops if fresh else ():
        start = text.find(stop, max(0, len(text) - fresh - len(stop) + 1))
        if start >= 0 and (best is None or start + len(stop) < best.end):
            best = StopMatch(stop, start, start + len(stop))
    return best


class StopMatcher:
    """Looks for stop strings in a stream. O(longest stop string) state."""

    def __init__(self, rules: OutputRules, window: StopWindow) -> None:
        """Resume from a carried window."""
        self._rules = rules
        self._longest = max(map(len, rules.stop))
        self.window = window

    @property
    def stopped(self) -> bool:
        """A stop string matched earlier."""
        return self.window.stopped

    def feed(self, pieces: Sequence[str], tokens: int, finished: bool) -> StopStep:
        """Take the text of a chunk, token by token.

        Args:
            pieces: Text each decoded token settled; a stop token that is left out has none.
            tokens: Tokens of the chunk, that one included.
            finished: The engine ended the generation with this chunk.
        """
        before, window = self.window, self.window
        text = before.tail + "".join(pieces)
        offsets = _offsets(len(before.tail), pieces, tokens)
        match = self._match(text, offsets, before.tokens, tokens)
        kept = tokens
        if match:
            kept = bisect_left(offsets, match.end, lo=1)
            text = text[: match.end if self._rules.include_stop_str_in_output else match.start]
        sent = len(before.tail) - before.unsent
        ready = len(text) - (0 if finished or match else self._held)
        end = max(sent, ready)
        unsent = len(text) - end
        self.window = StopWindow(
            tail=text[-max(self._longest - 1, unsent) :] if self._longest > 1 or unsent else "",
            unsent=unsent,
            tokens=window.tokens + tokens,
            stopped=match is not None,
        )
        return StopStep(text[sent:end], match.stop if match else None, kept)

    @property
    def _held(self) -> int:
        return 0 if self._rules.include_stop_str_in_output else self._longest - 1

    def _match(
        self, text: str, offsets: Sequence[int], before: int, tokens: int
    ) -> StopMatch | None:
        if not tokens or before + tokens <= self._rules.min_tokens:
            return None
        checked_from = offsets[max(self._rules.min_tokens - before, 0)]
        return find_stop(text, len(text) - checked_from, self._rules.stop)


def _offsets(start: int, pieces: Sequence[str], tokens: int) -> list[int]:
    """Text length before the first token and after each."""
    offsets = [start]
    for piece in pieces:
        offsets.append(offsets[-1] + len(piece))
    return offsets + offsets[-1:] * (tokens - len(pieces))


def _stopped_by(
    last: int | None, stop_reason: int | str | None, rules: OutputRules, ends: EndTokens
) -> tuple[bool, int | str | None]:
    if stop_reason is not None:
        # An engine without a tokenizer takes its end token for a stop token like any other.
        by_end = stop_reason == ends.primary and not rules.ignore_eos
        return last == stop_reason, None if by_end else stop_reason
    if last is None:
        return False, None
    if not rules.ignore_eos and last == ends.primary:
        return True, None
    if last in rules.stop_token_ids or (not rules.ignore_eos and last in ends.all):
        return True, last
    return False, None
