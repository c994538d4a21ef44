"""Delays between attempts: each twice as long as the one before, up to a bound. No clock."""


class Backoff:
    """The delays of one thing that is tried again and again."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        """Begin with the first delay.

        Args:
            first_s: Seconds before the first repetition.
            longest_s: Bound on every delay.
        """
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        """Seconds to wait; the next ones are twice as many."""
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, self._longest_s)
        return delay_s

    def reset(self) -> None:
        """Begin anew: what was tried has succeeded."""
        self._next_s = self._first_s
