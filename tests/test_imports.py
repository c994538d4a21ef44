"""The import table of the house, checked on the source and in a fresh interpreter."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("vllm", "torch", "transformers", "tokenizers")
ROOMS = ("core", "shards", "gateway", "loadtest")
MAY_IMPORT_OUTSIDE = {
    "core": {"msgspec", "xxhash"},
    "shards": {"msgspec", "setproctitle", "xxhash"},
    "gateway": {
        "aiohttp",
        "httpx",
        "litestar",
        "msgspec",
        "prometheus_client",
        "setproctitle",
        "uvicorn",
        "uvloop",
    },
}
MAY_IMPORT = {
    "core.protocol": {"core.protocol"},
    "core": {"core"},
    "shards.messages": {"core.protocol", "shards.messages"},
    "shards.pool": {"core.protocol", "shards.messages", "shards.pool"},
    "shards.shard": {"core", "shards.messages", "shards.shard"},
    "shards.service": {
        "core.protocol",
        "shards.messages",
        "shards.service",
        "shards.shard.entry",
    },
    "gateway": {"core.protocol", "gateway", "shards.messages", "shards.pool"},
    "gateway.cli": {
        "core.protocol",
        "gateway",
        "shards.messages",
        "shards.pool",
        "shards.service",
    },
    "loadtest": set(),
    "loadtest.bench": {
        "core",
        "loadtest.bench",
        "loadtest.model",
        "loadtest.report",
        "loadtest.servers",
    },
    "loadtest.demo": {"loadtest.demo", "loadtest.model", "loadtest.servers"},
    "loadtest.engine": {"loadtest.engine", "loadtest.model"},
    "loadtest.model": {"loadtest.model"},
    "loadtest.report": {"loadtest.report"},
    "loadtest.servers": {"core.vllm_adapter.patches", "loadtest.servers"},
}
"""What a place may import, all below included. Of places within each other the inner one counts."""


def _modules(room: str) -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / room).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


ALL = {name: path for room in ROOMS for name, path in _modules(room).items()}
SERVED = {name: path for name, path in ALL.items() if not name.startswith("loadtest")}
EACH = pytest.mark.parametrize(("module", "path"), ALL.items(), ids=ALL)
EACH_SERVED = pytest.mark.parametrize(("module", "path"), SERVED.items(), ids=SERVED)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in ALL else node.module for name in names)


GRAPH = {name: {other for other in _imports(path) if other in ALL} for name, path in ALL.items()}


def _below(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def _rule(module: str) -> set[str]:
    return MAY_IMPORT[max((place for place in MAY_IMPORT if _below(module, place)), key=len)]


def _closure(module: str) -> set[str]:
    """All that importing a module imports of the project, the packages around it included."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen and name in ALL:
            seen.add(name)
            waiting += [*GRAPH[name], name.rpartition(".")[0]]
    return seen


@EACH
def test_project_imports_follow_the_table(module: str, path: Path) -> None:
    for name in _imports(path):
        if name.split(".")[0] in ROOMS:
            assert any(_below(name, place) for place in _rule(module)) or name in (
                "core",
                "shards",
                "gateway",
            ), f"{module} may not import {name}"


@EACH_SERVED
def test_only_the_adapter_reaches_vllm(module: str, path: Path) -> None:
    roots = {name.split(".")[0] for name in _imports(path)}
    if not _below(module, "core.vllm_adapter"):
        assert not roots & set(HEAVY)


@EACH_SERVED
def test_packages_from_outside_are_the_expected_ones(module: str, path: Path) -> None:
    if _below(module, "core.vllm_adapter"):
        pytest.skip("the adapter reaches what vLLM brings")
    roots = {name.split(".")[0] for name in _imports(path)}
    outside = roots - set(sys.stdlib_module_names) - set(ROOMS)
    assert outside <= MAY_IMPORT_OUTSIDE[module.split(".")[0]]


@EACH_SERVED
def test_imports_stand_at_the_top(module: str, path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = [
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not hidden or _below(module, "core.vllm_adapter")


@pytest.mark.parametrize("module", [name for name in SERVED if not name.startswith("core")])
def test_what_a_module_pulls_in_is_light_outside_shards(module: str) -> None:
    heavy = {name for name in _closure(module) if _below(name, "core.vllm_adapter")}
    inside = _below(module, "shards.shard") and module not in ("shards.shard", "shards.shard.entry")
    assert not heavy or inside, f"{module} leads to {sorted(heavy)}"


def _assert_no_circle(graph: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(place: str, trail: tuple[str, ...]) -> None:
        assert place not in trail, " -> ".join((*trail, place))
        if place not in done:
            for other in graph[place]:
                visit(other, (*trail, place))
            done.add(place)

    for place in graph:
        visit(place, ())


def test_files_have_no_circle() -> None:
    _assert_no_circle(GRAPH)


def test_folders_have_no_circle() -> None:
    """A folder's own modules count as one place; what lies in a folder below it is another."""
    folder = {
        name: name if path.name == "__init__.py" else name.rpartition(".")[0]
        for name, path in ALL.items()
    }
    graph: dict[str, set[str]] = {place: set() for place in folder.values()}
    for name, others in GRAPH.items():
        # A package itself is its docstring, or re-exports what lies in it.
        graph[folder[name]] |= {folder[other] for other in others if "." in other} - {folder[name]}
    _assert_no_circle(graph)


def test_nothing_that_is_served_imports_a_tool() -> None:
    assert not {name for name in SERVED if GRAPH[name] - SERVED.keys()}


@pytest.mark.parametrize(
    "module",
    [
        "gateway.worker",
        "gateway.app",
        "gateway.cli.main",
        "shards.pool.pool",
        "shards.service.supervisor",
    ],
)
def test_light_modules_load_without_vllm(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_command_line_loads_no_web_framework() -> None:
    code = "import sys, gateway.cli.main; print({'litestar', 'uvicorn'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
