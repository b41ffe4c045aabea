"""The result of a check holds for the task that was checked, and for no other."""

from __future__ import annotations

import shutil
from pathlib import Path

from kernwright.tasks.admission_file import ADMISSION_FILE, why_not_admitted, write_admission
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


def test_the_tasks_that_ship_are_admitted() -> None:
    shipped = [name for name, folder in list_tasks().items() if folder.parent == CHECKOUT]
    assert len(shipped) > 10
    assert {name: why for name in shipped if (why := why_not_admitted(find_task(name)))} == {}
