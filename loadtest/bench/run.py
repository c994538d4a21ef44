"""What every group of the benchmark works with."""

from contextlib import ExitStack
from typing import NamedTuple

from loadtest.bench.keepalive import KeepAlive
from loadtest.bench.workload import Workload
from loadtest.report.table import Table
from loadtest.servers.fleet import PARSERS, Fleet

PROMPT_TOKENS = 64
_QUICK_DIVISOR = 8


class Pair(NamedTuple):
    """Both sides of a comparison, each with a connection."""

    reference: KeepAlive
    ours: KeepAlive


class BenchRun:
    """Tokens, servers and how much to measure.

    Attributes:
        workload: Tokens of the model that is served.
        fleet: Starts servers.
        rounds: Samples per side where each sample is one call.
        quick: Lengths are an eighth, to see that everything runs.
    """

    def __init__(
        self, workload: Workload, fleet: Fleet, stack: ExitStack, *, rounds: int, quick: bool
    ) -> None:
        """Start nothing yet; `stack` ends what the groups share."""
        self.workload = workload
        self.fleet = fleet
        self.rounds = rounds
        self.quick = quick
        self._stack = stack
        self._pairs: dict[bool, Pair] = {}

    def pair(self, *, parsers: bool = True) -> Pair:
        """Both servers, with or without parsers, started when a group first asks for them."""
        if parsers not in self._pairs:
            flags = PARSERS if parsers else ()
            theirs = self._stack.enter_context(self.fleet.reference(flags))
            ours = self._stack.enter_context(self.fleet.ours(flags))
            sides = (self._stack.enter_context(KeepAlive(side.url)) for side in (theirs, ours))
            self._pairs[parsers] = Pair(*sides)
        return self._pairs[parsers]

    def table(self, group: str) -> Table:
        """The table of a group; the shortened lengths of a quick run are not judged."""
        return Table(group, judged=not self.quick)

    def length(self, tokens: int) -> int:
        """A length in tokens, shortened in a quick run."""
        return max(32, tokens // _QUICK_DIVISOR) if self.quick else tokens
