"""One figure of a benchmark, and how it reads in a table."""

from collections.abc import Sequence

import msgspec


class FigureRow(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of ours, alone or beside what it is compared with."""

    group: str
    what: str
    unit: str
    ours: float
    base: float | None = None
    base_name: str = ""
    ratio: float | None = None
    """How many times faster than the base where `faster`, else how many times the base."""
    faster: bool = False
    wanted: float | None = None
    """The least ratio where `faster`, else the largest; of the figure itself without a base."""
    samples: dict[str, Sequence[float]] = {}

    @property
    def met(self) -> bool | None:
        """Whether the figure is as wanted; None where nothing is wanted."""
        if self.wanted is None:
            return None
        if self.ratio is None:
            return self.ours <= self.wanted
        return self.ratio >= self.wanted if self.faster else self.ratio <= self.wanted


def cells(row: FigureRow) -> tuple[str, str, str, str, str]:
    """What, compared with, ours, ratio and what is wanted, as they are shown."""
    base = "" if row.base is None else f"{_number(row.base)} {row.unit} ({row.base_name})"
    ratio = "" if row.ratio is None else f"{_number(row.ratio)}x"
    return row.what, base, f"{_number(row.ours)} {row.unit}", ratio, _wanted(row)


def _wanted(row: FigureRow) -> str:
    if row.wanted is None:
        return ""
    unit = "x" if row.ratio is not None else f" {row.unit}"
    bound = "at least" if row.faster else "at most"
    return f"{bound} {_number(row.wanted)}{unit}: {'met' if row.met else 'MISSED'}"


def _number(value: float) -> str:
    """Three significant digits, thousands grouped."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.1g}"
