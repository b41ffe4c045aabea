"""TaskSummary: one line about a task, read from its files without checking them."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASK_FILE = "task.toml"
ROWS_FILE = "workloads.jsonl"
GRID_FILE = "grid.jsonl"


@dataclass(frozen=True)
class TaskSummary:
    """A task's title, its ops and the numbers of its rows by set."""

    title: str
    ops: tuple[str, ...]
    rows: Counter[str]

    @classmethod
    def read(cls, folder: Path) -> TaskSummary:
        """Return the summary of a folder. Loading a task checks its files, which takes too long for a list of tasks.

        Raises:
            KernwrightError: the error of loading the task, if its files cannot be summarized.
        """
        try:
            title = str(tomllib.loads(_text(folder / TASK_FILE))["title"])
            rows = _objects(folder / ROWS_FILE)
            grids = _objects(folder / GRID_FILE) if (folder / GRID_FILE).exists() else []
            counts = Counter(row["set"] for row in rows)
            counts["grid"] += sum(map(_size, grids))
            return cls(title, tuple(dict.fromkeys(each["op"] for each in [*rows, *grids])), counts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            from kernwright.tasks.task import load_task

            task = load_task(folder)
            counts = Counter(row.set for row in task.rows)
            counts["grid"] += sum(grid.size for grid in task.grids)
            return cls(task.file.title, tuple(task.schemas), counts)


def row_ids(folder: Path) -> list[str]:
    """Return the ids of a task's rows; none if the file cannot be read."""
    try:
        return [str(row["id"]) for row in _objects(folder / ROWS_FILE)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _text(path).splitlines() if line.strip()]


def _text(path: Path) -> str:
    if not path.is_file():  # reading a pipe might never end
        raise FileNotFoundError(path)
    return path.read_text(encoding="utf-8")


def _size(grid: dict[str, Any]) -> int:
    """Return the number of rows of a grid: the product of the lengths of its lists."""
    lists = [*grid["axes"].values(), grid["dtypes"], *grid.get("scalars", {}).values()]
    return math.prod(map(len, [*lists, *grid.get("choices", {}).values()]))
