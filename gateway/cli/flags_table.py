"""`python -m gateway.cli.flags_table PAGE`: write the flag tables of a page from the settings."""

import sys
from collections.abc import Iterator
from pathlib import Path

from gateway.cli.flags import FLAGS, Flag, in_groups

_BEGIN = "<!-- The tables are written by `make docs`. -->\n"
_END = "<!-- Here they end. -->\n"


def with_tables(page: str) -> str:
    """Return the page with the tables between its two marks written anew.

    Raises:
        ValueError: The page has not each mark once.
    """
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    return "\n".join((before + _BEGIN, *_lines(), _END + after))


def _lines() -> Iterator[str]:
    for heading, flags in in_groups(FLAGS):
        yield from (f"**{heading}**", "", "| flag | default | |", "| --- | --- | --- |")
        yield from (_row(flag) for flag in flags if not flag.is_positional)
        yield ""


def _row(flag: Flag) -> str:
    default = ("on" if flag.default else "off") if flag.is_switch else flag.shown_default
    return f"| `--{flag.name}` | {default} | {flag.setting.help} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text("utf-8")), "utf-8")
