"""The declared dependencies are the imported ones: the base for the ops, an extra for the judge."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernwright import __main__ as entry
from kernwright.cli.agents import mcp as mcp_command
from kernwright.cli.main import app
from kernwright.core.errors import EnvironmentProblem

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kernwright"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LIBRARY = ("core", "runtime", "ops", "nn")  # the packages that a program imports with kernwright.ops and kernwright.nn
IMPORTED_AS = {"apache-tvm-ffi": "tvm_ffi", "nvidia-ml-py": "pynvml", "pillow": "PIL"}
IMPORTED_BY_OTHERS = {"ftfy"}  # by pipelines of diffusers
RUN_AS_COMMANDS = {"ninja"}  # apache-tvm-ffi starts it to build a native library


def declared(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}  # type: ignore[index]


def imported(files: Iterator[Path]) -> set[str]:
    """Return the third-party packages that files import, at their top or in a function."""
    found = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).partition(".")[0])
            elif isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
    return found - {*sys.stdlib_module_names, "kernwright", "__future__"}


BASE = declared(PROJECT["dependencies"])
JUDGE = declared(PROJECT["optional-dependencies"]["judge"])
DIFFUSERS = declared(PROJECT["optional-dependencies"]["diffusers"])
CAMPAIGN = declared(PROJECT["optional-dependencies"]["campaign"]) - {"kernwright"}
MCP = declared(PROJECT["optional-dependencies"]["mcp"]) - {"kernwright"}


def modules(names: set[str]) -> set[str]:
    return {IMPORTED_AS.get(name, name) for name in names - RUN_AS_COMMANDS - IMPORTED_BY_OTHERS}


def test_a_plain_install_has_all_that_ops_and_modules_import() -> None:
    files = (path for part in LIBRARY for path in (PACKAGE / part).rglob("*.py"))
    assert imported(files) == modules(BASE)
    assert imported(iter([PACKAGE / "__init__.py", PACKAGE / "__main__.py"])) == set()


def test_the_extras_have_all_that_the_other_packages_import_beyond_that() -> None:
    templates = PACKAGE / "scaffold" / "templates"
    files = (path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(templates))
    assert imported(files) == modules(BASE | JUDGE | DIFFUSERS | CAMPAIGN | MCP)
    assert imported(path for path in PACKAGE.rglob("*.py") if path.is_relative_to(PACKAGE / "mcp")) >= modules(MCP)


def test_every_dependency_has_a_version_that_was_tested() -> None:
    pins = re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    wanted = BASE | JUDGE | DIFFUSERS | declared(PROJECT["optional-dependencies"]["dev"]) - {"kernwright"}
    assert {name for name in wanted if name not in {pin.lower() for pin in pins}} == set()


def test_without_the_extra_a_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "typer" else found(name))
    with pytest.raises(SystemExit, match="2"):
        entry.main()
    said = capsys.readouterr().err
    assert "typer" in said and "rich" not in said and "kernwright[judge]" in said


def test_without_the_extra_mcp_the_server_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mcp" else found(name))
    result = CliRunner().invoke(app, ["mcp"])
    assert isinstance(result.exception, EnvironmentProblem) and set(mcp_command.NEEDED) == modules(MCP)
    assert result.exception.cause.endswith(": mcp") and "kernwright[mcp]" in result.exception.remedy


def test_every_package_without_which_no_command_starts_is_looked_for() -> None:
    assert set(entry.NEEDED) == modules(JUDGE) - {"pynvml"}, "NVIDIA's library is needed on a GPU alone"
