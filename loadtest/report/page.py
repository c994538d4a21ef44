"""A whole report: the setting, the rows and the caveats, as Markdown and as JSON."""

from collections.abc import Sequence

import msgspec

from loadtest.report.row import FigureRow, cells
from loadtest.report.setting import RunSetting

CAVEATS = (
    "Times are medians unless a row says otherwise, and both sides of a ratio are sampled in turn"
    " in one run.",
    "Client and servers share the cores of this machine; compare ratios, not milliseconds, with"
    " another machine's.",
    "The client is a raw socket that costs the same on both sides; nothing is subtracted.",
)


def render(setting: RunSetting, rows: Sequence[FigureRow]) -> str:
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


def _markdown(rows: Sequence[FigureRow]) -> list[str]:
    header = ("group", "what", "compared with", "ours", "ratio", "wanted")
    table = [header, *((row.group, *cells(row)) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(header))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in table
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def encode(setting: RunSetting, rows: Sequence[FigureRow]) -> bytes:
    """Setting, rows and every sample as JSON."""
    raw = msgspec.json.encode({"setting": setting, "caveats": CAVEATS, "rows": list(rows)})
    return msgspec.json.format(raw, indent=1)
