"""Rows of a benchmark, and the table, the JSON and the caveats they are shown with."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Sequence

import msgspec

from loadtest.measure import cpu_model, median

CAVEATS = (
    "Times are medians unless a row says otherwise, and both sides of a ratio are sampled in turn"
    " in one run.",
    "Client and servers share the cores of this machine; compare ratios, not milliseconds, with"
    " another machine's.",
    "The client is a raw socket that costs the same on both sides; nothing is subtracted.",
)

Samples = Sequence[Sequence[float]]
"""Two lists of samples: what is compared with, and ours."""
Statistic = Callable[[Sequence[float]], float]


class Row(msgspec.Struct, frozen=True, kw_only=True):
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


class Table:
    """Collects the rows of one group."""

    def __init__(self, group: str, *, judged: bool = True) -> None:
        """Name the group.

        Args:
            group: Its name.
            judged: Whether rows say if a figure is as wanted.
        """
        self.group = group
        self.rows: list[Row] = []
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
        row = msgspec.convert({"group": self.group, **members}, Row)
        self.rows.append(row)
        print(f"  {row.what}: {_cells(row)[1:]}", file=sys.stderr, flush=True)


def _own_version() -> str:
    try:
        return importlib.metadata.version("derender-gateway")
    except importlib.metadata.PackageNotFoundError:
        return "from source"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures were taken with."""

    command: str
    model: str
    shards: int
    rounds: int
    max_model_len: int
    cpu: str = msgspec.field(default_factory=cpu_model)
    cores: int = msgspec.field(default_factory=lambda: len(os.sched_getaffinity(0)))
    python: str = platform.python_version()
    vllm: str = msgspec.field(default_factory=lambda: importlib.metadata.version("vllm"))
    ours: str = msgspec.field(default_factory=_own_version)


def render(setting: Setting, rows: Sequence[Row]) -> str:
    """The table as Markdown, with its setting above and its caveats below."""
    lines = [
        f"CPU {setting.cpu}, {setting.cores} cores; Python {setting.python};"
        f" vLLM {setting.vllm}; derender-gateway {setting.ours}, {setting.shards} shard(s)",
        f"model {setting.model}, max_model_len {setting.max_model_len},"
        f" {setting.rounds} rounds; command: {setting.command}",
        "",
        *_markdown(rows),
        "",
        *(f"* {caveat}" for caveat in CAVEATS),
    ]
    return "\n".join(lines)


def _markdown(rows: Sequence[Row]) -> list[str]:
    header = ("group", "what", "compared with", "ours", "ratio", "wanted")
    table = [header, *((row.group, *_cells(row)) for row in rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(header))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        + " |"
        for cells in table
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    base = "" if row.base is None else f"{_number(row.base)} {row.unit} ({row.base_name})"
    ratio = "" if row.ratio is None else f"{_number(row.ratio)}x"
    return row.what, base, f"{_number(row.ours)} {row.unit}", ratio, _wanted(row)


def _wanted(row: Row) -> str:
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


def encode(setting: Setting, rows: Sequence[Row]) -> bytes:
    """Setting, rows and every sample as JSON."""
    raw = msgspec.json.encode({"setting": setting, "caveats": CAVEATS, "rows": list(rows)})
    return msgspec.json.format(raw, indent=1)
