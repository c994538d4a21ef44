"""Modules and functions stay small enough to be read in one sitting."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULE_LINES = 300
FUNCTION_LINES = 40
"""Without its docstring."""

SOURCES = [
    path
    for room in ("core", "shards", "gateway", "loadtest")
    for path in sorted((ROOT / room).rglob("*.py"))
]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_and_its_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            described = (ast.get_docstring(node, clean=False) or "").count("\n")
            lines = (node.end_lineno or 0) - node.lineno - described
            assert lines <= FUNCTION_LINES, f"{node.name} has {lines} lines"
