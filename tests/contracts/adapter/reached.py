"""How a contract test says which line of `core.vllm_adapter.reaches` it holds."""

import ast
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])


def holds(name: str) -> Callable[[Test], Test]:
    """Mark the test that holds what is said of a name; it is found in the source."""
    return lambda test: test


def held() -> Iterator[str]:
    """The names that tests of this folder hold."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == holds.__name__:
                yield ast.literal_eval(node.args[0])


def resolve(name: str) -> Any:
    """What a dotted name stands for.

    Raises:
        AttributeError, ModuleNotFoundError: There is no such name.
    """
    parts = name.split(".")
    found: Any = None
    for length in range(1, len(parts) + 1):
        if hasattr(found, parts[length - 1]):
            found = getattr(found, parts[length - 1])
        elif found is None or hasattr(found, "__path__"):
            found = importlib.import_module(".".join(parts[:length]))
        else:
            raise AttributeError(f"{name}: no {parts[length - 1]!r} in {found!r}")
    return found
