"""Locust users stand alone."""

import ast
import sys

from tests.serving import ROOT


def test_locust_users_import_nothing_of_the_project() -> None:
    tree = ast.parse((ROOT / "loadtest" / "users" / "users.py").read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    plain = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    modules |= {alias.name for node in plain for alias in node.names}
    roots = {str(module).split(".")[0] for module in modules}
    assert roots <= set(sys.stdlib_module_names) | {"locust", "tokenizers"}
