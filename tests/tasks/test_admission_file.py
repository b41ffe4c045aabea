"""The result of a check holds only for the task that was checked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernwright.core.errors import EnvironmentProblem
from kernwright.tasks.admission_file import (
    ADMISSION_FILE,
    CHECK,
    PACKAGE,
    check_digest,
    why_not_admitted,
    write_admission,
)
from kernwright.tasks.catalog import find_task, list_tasks
from kernwright.tasks.task import load_task

CHECKOUT = Path(__file__).parents[2] / "tasks"


def test_only_the_checked_task_is_admitted(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "tiny")
    assert why_not_admitted(load_task(folder)) == "it was never checked"
    write_admission(load_task(folder), admitted=True)
    assert why_not_admitted(load_task(folder)) is None
    ops = folder / "definitions.py"
    ops.write_text(ops.read_text().replace("return alpha * x", "return x * alpha"))
    assert "changed" in str(why_not_admitted(load_task(folder)))
    write_admission(load_task(folder), admitted=False)
    assert "refused" in str(why_not_admitted(load_task(folder)))
    (folder / ADMISSION_FILE).write_text("nonsense")
    assert why_not_admitted(load_task(folder)) == "it was never checked"


def test_a_changed_mutant_or_contract_needs_a_new_check(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "kernwright"
    for pattern in CHECK:
        for path in PACKAGE.glob(pattern):
            copy = package / path.relative_to(PACKAGE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    assert check_digest(package) == check_digest()
    mutants = package / "admission" / "mutants.py"
    mutants.write_text(mutants.read_text() + "\nNEW = 1\n")
    check_digest.cache_clear()
    assert check_digest(package) != check_digest()
    task = load_task(shutil.copytree(tiny_folder, tmp_path / "tiny"))
    write_admission(task, admitted=True)
    monkeypatch.setattr("kernwright.tasks.admission_file.check_digest", lambda: "another")
    assert "earlier mutants" in str(why_not_admitted(task))


def test_a_result_that_cannot_be_written_is_reported(tiny_folder: Path, tmp_path: Path) -> None:
    task = load_task(shutil.copytree(tiny_folder, tmp_path / "tiny"))
    (task.folder / ADMISSION_FILE).mkdir()
    with pytest.raises(EnvironmentProblem, match=ADMISSION_FILE):
        write_admission(task, admitted=False)


def test_the_tasks_that_ship_are_admitted() -> None:
    shipped = [name for name, folder in list_tasks().items() if folder.parent == CHECKOUT]
    assert len(shipped) > 10
    assert {name: why for name in shipped if (why := why_not_admitted(find_task(name)))} == {}
