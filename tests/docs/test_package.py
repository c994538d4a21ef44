"""What is installed: the wheel's content, the dependencies that are declared, and both locks."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from zipfile import ZipFile

import pytest

from tests.serving import ROOT

PACKAGES = ("core", "gateway", "shards")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FOR_A_LIBRARY = {"httptools"}
"""Dependencies that are not imported: uvicorn parses HTTP with it."""
_REQUIREMENT = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZipFile]:
    """The wheel of this checkout, built from a copy: a build leaves folders behind."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in (*PACKAGES, "loadtest", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    build = "from setuptools.build_meta import build_wheel; build_wheel('built')"
    (source / "built").mkdir()
    run = subprocess.run(
        [sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    (path,) = (source / "built").iterdir()
    with ZipFile(path) as opened:
        yield opened


def _modules(package: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py")}


def test_the_wheel_holds_what_is_served(wheel: ZipFile) -> None:
    names = set(wheel.namelist())
    info = {name for name in names if ".dist-info/" in name}
    typed = {f"{package}/py.typed" for package in PACKAGES}
    assert names - info == typed.union(*map(_modules, PACKAGES))


def test_the_wheel_starts_by_its_name(wheel: ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "derender = gateway.cli.main:main" in wheel.read(entry_points).decode()


def _names(requirements: list[str]) -> set[str]:
    found = (_REQUIREMENT.match(requirement) for requirement in requirements)
    return {match[1] for match in found if match}


def _imported(folder: str) -> set[str]:
    """Third-party packages that the modules of a folder import, by the name of the package."""
    modules: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module)
    roots = {module.split(".")[0] for module in modules}
    ours = {*PACKAGES, "loadtest", *sys.stdlib_module_names}
    return {root.replace("_", "-") for root in roots - ours}


def test_dependencies_are_what_is_imported() -> None:
    imported = set().union(*map(_imported, PACKAGES))
    assert _names(PROJECT["dependencies"]) == imported | FOR_A_LIBRARY


def test_the_extra_is_what_loadtest_imports_besides() -> None:
    extra = _names(PROJECT["optional-dependencies"]["loadtest"])
    assert extra == _imported("loadtest") - _names(PROJECT["dependencies"])


def _lock(name: str) -> dict[str, str]:
    """Each entry of a lock, its hashes included, by its first line: version and marker."""
    lines = re.sub(r"^#.*\n", "", (ROOT / name).read_text("utf-8"), flags=re.MULTILINE)
    entries = re.split(r"\n(?=\S)", lines)
    assert all("--hash=sha256:" in entry for entry in entries)
    return {entry.split(" \\\n")[0]: entry.strip() for entry in entries}


def test_what_is_served_has_the_versions_that_are_tested() -> None:
    served, tested = _lock("requirements-serve.txt"), _lock("requirements.txt")
    assert served.items() <= tested.items()
    names, all_names = ({pin.split("==")[0] for pin in lock} for lock in (served, tested))
    extras = PROJECT["optional-dependencies"]
    assert _names(PROJECT["dependencies"] + extras["build"]) <= names
    assert _names(extras["test"] + extras["loadtest"]) - {"derender-gateway"} <= all_names
    assert not names & {"coverage", "hypothesis", "locust", "mypy", "pytest", "ruff"}
