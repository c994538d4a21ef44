"""The rows of one group of a benchmark, told as they come."""

import sys
from collections.abc import Callable, Sequence

import msgspec

from loadtest.report.row import FigureRow, cells
from loadtest.report.samples import median

Samples = Sequence[Sequence[float]]
"""Two lists of samples: what is compared with, and ours."""
Statistic = Callable[[Sequence[float]], float]


class Table:
    """Collects the rows of one group."""

    def __init__(self, group: str, *, judged: bool = True) -> None:
        """Name the group.

        Args:
            group: Its name.
            judged: Whether rows say if a figure is as wanted.
        """
        self.group = group
        self.rows: list[FigureRow] = []
        self._judged = judged

    def faster(
        self,
        what: str,
        samples: Samples,
        at_least: float | None = None,
        statistic: Statistic = median,
    ) -> None:
        """Times in seconds of the reference and of ours; the ratio is how much faster ours is."""
        theirs_ms, ours_ms = (statistic(side) * 1000 for side in samples)
        self._add(
            what=what,
            unit="ms",
            ours=ours_ms,
            base=theirs_ms,
            base_name="reference",
            ratio=theirs_ms / ours_ms,
            faster=True,
            wanted=at_least,
            samples=dict(zip(("reference", "ours"), samples, strict=True)),
        )

    def times(
        self,
        what: str,
        samples: Samples,
        base_name: str,
        at_most: float | None = None,
        statistic: Statistic = median,
    ) -> None:
        """Times in seconds of two things ours does; the ratio is how much longer the second is."""
        base_ms, ours_ms = (statistic(side) * 1000 for side in samples)
        self._add(
            what=what,
            unit="ms",
            ours=ours_ms,
            base=base_ms,
            base_name=base_name,
            ratio=ours_ms / base_ms,
            wanted=at_most,
            samples=dict(zip(("base", "ours"), samples, strict=True)),
        )

    def compared(
        self,
        what: str,
        unit: str,
        base: float,
        ours: float,
        base_name: str,
        at_most: float | None = None,
    ) -> None:
        """Two plain figures, and the second as a multiple of the first."""
        self._add(
            what=what,
            unit=unit,
            ours=ours,
            base=base,
            base_name=base_name,
            ratio=ours / base,
            wanted=at_most,
        )

    def figure(self, what: str, unit: str, ours: float, at_most: float | None = None) -> None:
        """A figure without a base."""
        self._add(what=what, unit=unit, ours=ours, wanted=at_most)

    def _add(self, **members: object) -> None:
        if not self._judged:
            members["wanted"] = None
        row = msgspec.convert({"group": self.group, **members}, FigureRow)
        self.rows.append(row)
        print(f"  {row.what}: {cells(row)[1:]}", file=sys.stderr, flush=True)
