"""Baselines are found by name without running them, and identified by a digest."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.baselines.lookup import find_baseline
from kernwright.core.errors import KernwrightError
from kernwright.tasks.baseline import adapter_names
from kernwright.tasks.task import Task, load_task

ADAPTERS = """
raise RuntimeError("the judge imported an adapter")

def fused(op):
    return None

def _helper():
    return None

class Table: ...
"""


@pytest.fixture
def task(tmp_path: Path, write_task: Callable[..., Path]) -> Task:
    folder = write_task(tmp_path / "t")
    (folder / "baselines.py").write_text(ADAPTERS)
    return load_task(folder)


def test_built_in_baselines_are_torchs(task: Task) -> None:
    eager, compiled = find_baseline(task, "eager"), find_baseline(task, "compile")
    assert (eager.kind, eager.package, eager.version) == ("eager", "torch", importlib.metadata.version("torch"))
    assert compiled.kind == "compile"
    assert eager.digest != compiled.digest
    assert eager.digest == find_baseline(task, "eager").digest


def test_adapters_are_the_public_functions_and_are_not_imported(task: Task) -> None:
    assert adapter_names(task.adapters) == ["fused"]
    assert find_baseline(task, "fused").kind == "adapter"


def test_an_adapters_digest_is_of_its_code(task: Task) -> None:
    first = find_baseline(task, "fused").digest
    assert task.adapters is not None
    task.adapters.write_text(ADAPTERS + "\n# another comment\n")
    assert find_baseline(task, "fused").digest == first
    task.adapters.write_text(ADAPTERS + "\nmore = 1\n")
    assert find_baseline(task, "fused").digest != first
    assert find_baseline(task, "eager").digest == find_baseline(task, "eager").digest


@pytest.mark.parametrize("name", ["triton", "_helper", "Table", ""])
def test_an_unknown_baseline_lists_those_there_are(task: Task, name: str) -> None:
    with pytest.raises(KernwrightError, match="eager, compile, fused"):
        find_baseline(task, name)


def test_adapters_with_a_syntax_error_are_named(task: Task) -> None:
    assert task.adapters is not None
    task.adapters.write_text("def (:")
    with pytest.raises(KernwrightError, match=r"baselines\.py: is not valid Python"):
        find_baseline(task, "fused")


def test_a_task_without_adapters_has_the_built_in_ones(tiny_folder: Path) -> None:
    bare = load_task(tiny_folder)
    assert bare.adapters is None
    assert adapter_names(bare.adapters) == []
    with pytest.raises(KernwrightError, match=r"eager, compile, sglang@0\.5\.23"):
        find_baseline(bare, "fused")


@pytest.mark.parametrize("name", ["eager", "Compile", "kernwright", "Kernwright", "k\u0435rnwright"])
def test_an_adapter_has_no_name_that_stands_for_something_else(tmp_path: Path, name: str) -> None:
    path = tmp_path / "baselines.py"
    path.write_text(f"def {name}(op):\n    return op\n")
    with pytest.raises(KernwrightError, match="can be taken for"):
        adapter_names(path)
