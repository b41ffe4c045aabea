"""Scripts outside of the package import names that the package has."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path.relative_to(CHECKOUT).as_posix()
    for folder in ("examples", "benchmarks")
    for path in (CHECKOUT / folder).rglob("*.py")
)


def missing(path: Path) -> list[str]:
    """Return the names that a script imports from Kernwright and that are not there."""
    imports = (
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.module
    )
    wanted = [
        (node.module, name.name) for node in imports for name in node.names if node.module.startswith("kernwright")
    ]
    return [f"{module}.{name}" for module, name in wanted if not has(module, name)]


def has(module: str, name: str) -> bool:
    found = import_module(module)
    is_package = hasattr(found, "__path__")
    return hasattr(found, name) or (is_package and find_spec(f"{module}.{name}") is not None)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_imports_what_exists(script: str) -> None:
    assert missing(CHECKOUT / script) == []


def test_a_name_that_moved_is_found(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from kernwright.report.table import verdict_table\nfrom kernwright.core import errors\n")
    assert missing(script) == ["kernwright.report.table.verdict_table"]
