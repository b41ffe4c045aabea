"""Find tasks by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.tasks.summary import TASK_FILE

if TYPE_CHECKING:
    from kernwright.tasks.task import Task


def task_roots() -> list[Path]:
    """Return the folders of tasks: those of the user, of this checkout, and of the installed package."""
    package = Path(__file__).resolve().parents[1]
    own = [Path(part) for part in os.environ.get("KERNWRIGHT_TASKS", "").split(os.pathsep) if part]
    roots = [*own, Path.cwd() / "tasks", package.parents[1] / "tasks", package / "_tasks"]
    return list(dict.fromkeys(root for root in roots if root.is_dir()))


def list_tasks() -> dict[str, Path]:
    """Return the folders of all tasks, by name."""
    found: dict[str, Path] = {}
    for root in task_roots():
        for file in sorted(root.glob(f"*/{TASK_FILE}")):
            found.setdefault(file.parent.name, file.parent)
    return found


def find_task(name_or_folder: str) -> Task:
    """Return a task by its name or its folder."""
    from kernwright.tasks.task import load_task

    return load_task(find_task_folder(name_or_folder))


def find_task_folder(name_or_folder: str) -> Path:
    """Return the folder of a task by its name or its folder."""
    folder = Path(name_or_folder)
    if (folder / TASK_FILE).is_file() or (folder.is_dir() and os.sep in name_or_folder):
        return folder.resolve()  # loading a folder without a task.toml raises the error that it is missing
    tasks = list_tasks()
    if name_or_folder in tasks:
        return tasks[name_or_folder]
    known = f"give a folder that holds {TASK_FILE}, or one of: {', '.join(tasks) or '(no tasks found)'}"
    raise KernwrightError(
        f"no task named {name_or_folder!r} in {_searched()}", did_you_mean(name_or_folder, tasks, known)
    )


def _searched() -> str:
    """Return the folders in which tasks are searched, for an error."""
    own = Path.cwd() / "tasks"
    roots = [f"{root} (tasks of the current folder)" if root == own else str(root) for root in task_roots()]
    missing = [] if own.is_dir() else [f"{own} (does not exist)"]
    return ", ".join([*missing, *roots])
