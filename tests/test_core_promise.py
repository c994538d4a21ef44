"""`core` keeps what its docstring promises: nothing of its surroundings is within its reach."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE = {
    *("array", "bisect", "collections", "contextlib", "copy", "enum", "functools", "itertools"),
    *("json", "math", "re", "struct", "types", "typing"),
}
"""What computes and does nothing else."""
ALSO = {"logging"}
"""Says what happened; nothing is answered differently for it."""
NAMED = {
    "core.vllm_adapter.encoding": {"importlib.metadata"},  # The version in a line of the log.
    "core.vllm_adapter.loading": {"argparse"},  # A namespace, which vLLM takes.
    "core.vllm_adapter.rendering": {"asyncio"},  # Runs vLLM's coroutines in the calling thread.
}
"""What single modules use beside that, and what for."""
BUILTINS = {"__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"}
EVENT_LOOP = {"AbstractEventLoop", "Future", "SelectorEventLoop"}
"""All of asyncio that running coroutines in one thread takes."""

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
        path.read_text(encoding="utf-8")
    )
    for path in sorted((ROOT / "core").rglob("*.py"))
}


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("module", MODULES)
def test_only_what_computes_is_imported(module: str) -> None:
    standard = {
        name for name in _imports(MODULES[module]) if name.split(".")[0] in sys.stdlib_module_names
    }
    impure = {name for name in standard if name.split(".")[0] not in PURE | ALSO}
    assert impure <= NAMED.get(module, set())


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_opened_printed_or_evaluated(module: str) -> None:
    called = {
        node.func.id
        for node in ast.walk(MODULES[module])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & BUILTINS


def test_of_asyncio_a_loop_is_used_and_nothing_that_waits() -> None:
    used = {
        node.attr
        for node in ast.walk(MODULES["core.vllm_adapter.rendering"])
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "asyncio"
    }
    assert used == EVENT_LOOP


def test_every_exception_is_needed() -> None:
    for module, names in NAMED.items():
        assert names <= set(_imports(MODULES[module])), module
