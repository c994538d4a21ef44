"""Whether an engine is asked, decided from how its requests end. No clock: time is passed in."""

from core.protocol.backoff import Backoff

FAILURES_IN_A_ROW = 3

_FIRST_EJECTION_S = 1.0
_LONGEST_EJECTION_S = 30.0


class EngineHealth:
    """Ejects an engine that fails, and lets it back.

    * A failure to connect ejects at once: nothing listens, and every request would find that out.
    * An answer that breaks off, times out, is none, or is a 5xx other than 503 ejects when it is
      the third in a row. One that ends well in between, on any connection, starts the count anew,
      so a well engine is not ejected for a single request.
    * An ejection lasts 1 s, and twice as long (at most 30 s) each time the engine fails again
      before a request ended well.
    * After that time, requests are let through on trial, one per such time, until one is answered.
    * A health check that succeeds ends the ejection earlier. If the engine then fails again before
      a request ended well, its health check says nothing about its work, and only time counts.
    * What began before the last ejection says nothing about the engine since: the many requests
      that break off when an engine dies count once.

    Attributes:
        failures: Failures in a row.
        ejections: How often the engine was ejected.
    """

    def __init__(self) -> None:
        """Begin well."""
        self.failures = 0
        self.ejections = 0
        self._returns_at: float | None = None
        self._ejection_s = _FIRST_EJECTION_S
        self._backoff = Backoff(_FIRST_EJECTION_S, _LONGEST_EJECTION_S)
        self._vouched_for = False

    @property
    def ejected(self) -> bool:
        """Whether the engine is asked only on trial, or where no other is left."""
        return self._returns_at is not None

    @property
    def returns_at(self) -> float:
        """When the next trial may begin; in the past for an engine that is not ejected."""
        return float("-inf") if self._returns_at is None else self._returns_at

    @property
    def wants_check(self) -> bool:
        """Whether a health check could end the ejection."""
        return self.ejected and not self._vouched_for

    def begin(self, now: float) -> int:
        """Note that a request goes to the engine.

        Returns:
            What to name when the request is answered or ends.
        """
        if self._returns_at is not None:
            self._returns_at = now + self._ejection_s
        return self.ejections

    def answered(self, begun: int) -> None:
        """Note that a request was answered; whether the answer is whole is not known yet."""
        if begun == self.ejections:
            self._returns_at = None

    def ended_well(self, begun: int) -> None:
        """Note that a request ended well: whatever was held against the engine is forgotten."""
        if begun == self.ejections:
            self.failures = 0
            self._returns_at = None
            self._backoff.reset()
            self._vouched_for = False

    def failed(self, begun: int, now: float, *, to_connect: bool) -> bool:
        """Note that a request failed.

        Returns:
            Whether that ejects the engine.
        """
        if begun != self.ejections:
            return False
        self.failures += 1
        if not to_connect and not self.ejected and self.failures < FAILURES_IN_A_ROW:
            return False
        self._eject(now)
        return True

    def checked(self) -> None:
        """Note that a health check succeeded."""
        if self.wants_check:
            self._returns_at = None
            self._vouched_for = True

    def _eject(self, now: float) -> None:
        self._ejection_s = self._backoff.next_s()
        self._returns_at = now + self._ejection_s
        self.ejections += 1
