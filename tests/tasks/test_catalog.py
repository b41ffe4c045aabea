"""Tasks are found by name or by folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.core.errors import BadFile, KernwrightError
from kernwright.tasks.catalog import find_task, list_tasks


@pytest.fixture
def own(tmp_path: Path, write_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNWRIGHT_TASKS", str(tmp_path / "own"))
    return write_task(tmp_path / "own" / "tiny")


def test_own_tasks_come_before_those_that_ship(own: Path, write_task: Callable[..., Path]) -> None:
    write_task(own.parent / "norm_scale_shift")
    tasks = list_tasks()
    assert tasks["tiny"] == own
    assert tasks["norm_scale_shift"] == own.parent / "norm_scale_shift"


def test_shipped_tasks_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNWRIGHT_TASKS", raising=False)
    assert find_task("norm_scale_shift").name == "norm_scale_shift"


def test_by_name_and_by_folder(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = find_task("tiny")
    assert find_task(str(own)).digest == by_name.digest
    monkeypatch.chdir(own)
    assert find_task(".").digest == by_name.digest


def test_an_unknown_name_lists_the_known(own: Path) -> None:
    with pytest.raises(KernwrightError, match=r"no task named 'tny'(?s:.*)tiny"):
        find_task("tny")


def test_a_folder_that_is_not_a_task_is_refused_with_the_missing_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadFile, match=r"task\.toml: does not exist"):
        find_task(str(tmp_path / "folder"))


def test_the_shipped_task_holds_its_production_rows() -> None:
    task = find_task("norm_scale_shift")
    production = [row for row in task.rows if row.set == "production"]
    assert len(production) == 39
    assert all(row.models for row in production)
    assert {row.op for row in production} == {"norm_scale_shift", "residual_norm_scale_shift"}
    known = {row.id: row for row in production}
    for smoke in (row for row in task.rows if row.set == "smoke"):
        original = known[str(smoke.sized_from)]
        assert smoke.inputs.keys() == original.inputs.keys()
        assert {n: t.dtype for n, t in smoke.inputs.items()} == {n: t.dtype for n, t in original.inputs.items()}
        assert smoke.scalars == original.scalars
        assert smoke.bytes_min <= original.bytes_min
