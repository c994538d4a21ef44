"""The import table of the house, checked on the source and in a fresh interpreter."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("vllm", "torch", "transformers", "tokenizers")
LIGHT_CORE = {
    f"core.{name}"
    for name in (
        "bounds",
        "errors",
        "generate",
        "ids",
        "limits",
        "openai",
        "options",
        "plan",
        "wire",
    )
}
CHILD_SIDE = {
    "shards.loop",
    "shards.model",
    "shards.peer",
    "shards.streams",
    "shards.warm",
    "shards.work",
}
SHARED_SHARDS = {
    "shards.channel",
    "shards.counters",
    "shards.current",
    "shards.entry",
    "shards.logs",
}
MAY_IMPORT_OUTSIDE = {
    "core": {"msgspec", "xxhash", "jinja2", "tokenizers"},
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
ROOMS = ("core", "shards", "gateway", "loadtest")


def _modules(room: str) -> list[tuple[str, Path]]:
    found = []
    for path in sorted((ROOT / room).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if _is_module(name) else node.module for name in names)


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _is_adapter(module: str) -> bool:
    return module == "core.vllm_adapter" or module.startswith("core.vllm_adapter.")


def _is_light(module: str) -> bool:
    return module in LIGHT_CORE or module == "core"


ALL = [(name, path) for room in ("core", "shards", "gateway") for name, path in _modules(room)]


@pytest.mark.parametrize(("module", "path"), ALL, ids=[name for name, _ in ALL])
def test_project_imports_follow_the_table(module: str, path: Path) -> None:
    ours = {name for name in _imports(path) if name.split(".")[0] in ROOMS}
    for name in ours:
        assert _allowed(module, name), f"{module} may not import {name}"


def _allowed(module: str, name: str) -> bool:
    room, target = module.split(".")[0], name.split(".")[0]
    if room == "core":
        if target != "core":
            return False
        return _is_light(name) if _is_light(module) else True
    if room == "shards":
        if module in CHILD_SIDE:
            return target == "core" or name in CHILD_SIDE | SHARED_SHARDS | {"shards"}
        if name in CHILD_SIDE:
            return (module, name) == ("shards.entry", "shards.loop")
        return target == "shards" or _is_light(name)
    return target == "gateway" or _is_light(name) or (target == "shards" and name not in CHILD_SIDE)


@pytest.mark.parametrize(("module", "path"), ALL, ids=[name for name, _ in ALL])
def test_only_the_adapter_reaches_vllm(module: str, path: Path) -> None:
    roots = {name.split(".")[0] for name in _imports(path)}
    if not _is_adapter(module):
        assert not roots & {"vllm", "torch", "transformers"}


@pytest.mark.parametrize(("module", "path"), ALL, ids=[name for name, _ in ALL])
def test_packages_from_outside_are_the_expected_ones(module: str, path: Path) -> None:
    if _is_adapter(module):
        pytest.skip("the adapter reaches what vLLM brings")
    roots = {name.split(".")[0] for name in _imports(path)}
    outside = roots - set(sys.stdlib_module_names) - set(ROOMS)
    assert outside <= MAY_IMPORT_OUTSIDE[module.split(".")[0]]


@pytest.mark.parametrize(("module", "path"), ALL, ids=[name for name, _ in ALL])
def test_imports_stand_at_the_top(module: str, path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = [
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not hidden or module == "shards.entry" or _is_adapter(module)


def test_graph_has_no_cycle() -> None:
    graph = {name: set(_imports(path)) & {other for other, _ in ALL} for name, path in ALL}
    graph["shards.entry"].discard("shards.loop")
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for other in graph[module]:
                visit(other, (*trail, module))
            done.add(module)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize(
    "module",
    ["gateway.worker", "gateway.app", "gateway.cli", "shards.pool", "shards.supervisor"],
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
