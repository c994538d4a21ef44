"""What every group of the benchmark works with."""

from typing import NamedTuple

from loadtest.fleet import Fleet
from loadtest.report import Table
from loadtest.workload import Workload

PROMPT_TOKENS = 64
_QUICK_DIVISOR = 8


class Plan(NamedTuple):
    """Tokens, servers and how much to measure."""

    workload: Workload
    fleet: Fleet
    rounds: int
    """Samples per side where each sample is one call."""
    quick: bool
    """Lengths are an eighth, to see that everything runs."""

    def table(self, group: str) -> Table:
        """The table of a group; the shortened lengths of a quick run are not judged."""
        return Table(group, judged=not self.quick)

    def length(self, tokens: int) -> int:
        """A length in tokens, shortened in a quick run."""
        return max(32, tokens // _QUICK_DIVISOR) if self.quick else tokens
