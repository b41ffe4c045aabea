"""Task: the frozen rows of one family of ops, with tolerances and timing policy."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.digest import digest_of
from kernwright.core.errors import BadFile, KernwrightError
from kernwright.core.op import Op
from kernwright.core.registry import ops_from_file, shipped_ops
from kernwright.tasks.files import read_jsonl, read_toml
from kernwright.tasks.grid import Grid
from kernwright.tasks.policy import TimingOverrides, TimingPolicy
from kernwright.tasks.tensor import DType
from kernwright.tasks.workload import RowSet, Workload

TASK_FILE = "task.toml"
ROWS_FILE = "workloads.jsonl"
GRID_FILE = "grid.jsonl"
BASELINES_FILE = "baselines.py"


class Tolerance(BaseModel):
    """|value - oracle| <= atol + rtol * |oracle|, element by element."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    atol: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    rtol: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TaskFile(BaseModel):
    """task.toml, as its author wrote it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    title: str
    origin: str = Field(description="where the rows were seen, or how they were derived")
    definitions: str | None = Field(default=None, description="a Python file in the folder that defines the ops")
    neighbours: tuple[str, ...] = Field(
        default=(), description="axes whose odd and prime neighbours are checked beside the frozen sizes"
    )
    tolerance: dict[DType, Tolerance] = Field(min_length=1)
    timing: TimingOverrides = TimingOverrides()


class Task(BaseModel):
    """A task as loaded: every op found, every row checked against its op."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, ignored_types=(cached_property,))

    folder: Path
    file: TaskFile
    ops: dict[str, Op]
    rows: tuple[Workload, ...]
    grids: tuple[Grid, ...] = ()
    policy: TimingPolicy

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def adapters(self) -> Path | None:
        """The path of baselines.py, or None. Only the worker of a baseline imports it."""
        path = self.folder / BASELINES_FILE
        return path if path.is_file() else None

    @cached_property
    def digest(self) -> str:
        """The digest of op definitions, rows, tolerances and policy. Titles and origins do not count."""
        return digest_of(
            {
                "name": self.name,
                "ops": {name: op.digest for name, op in self.ops.items()},
                "rows": [row.model_dump(mode="json", exclude={"models", "sized_from"}) for row in self.rows],
                "grids": [grid.model_dump(mode="json") for grid in self.grids],
                "neighbours": list(self.file.neighbours),
                "tolerance": {dtype: t.model_dump() for dtype, t in self.file.tolerance.items()},
                "policy": self.policy.model_dump(),
            }
        )

    @cached_property
    def grid_rows(self) -> tuple[Workload, ...]:
        """The rows of all grids, often thousands."""
        return tuple(row for grid in self.grids for row in grid.rows(self.ops[grid.op].inplace))

    def at_frozen_sizes(self) -> Task:
        """Return the task without the neighbouring sizes of its rows."""
        return self.model_copy(update={"file": self.file.model_copy(update={"neighbours": ()})})

    def op_of(self, row: Workload) -> Op:
        return self.ops[row.op]

    def tolerance_for(self, dtype: str) -> Tolerance:
        return self.file.tolerance[dtype]  # type: ignore[index]  # load_task saw to it that every output has one

    def has(self, pattern: str) -> bool:
        return bool(self.matching(pattern))

    def matching(self, pattern: str) -> tuple[Workload, ...]:
        """Return the rows that match globs over ids or sets (`production`, `smoke`, `grid`, `all`), with commas."""
        words = set(words_of(pattern))
        globs = [word for word in words if _is_glob(word)]  # a sweep names hundreds of rows by their ids
        return tuple(
            row
            for row in self._rows_for(words)
            if words & {"all", row.set, row.id} or any(fnmatch.fnmatchcase(row.id, glob) for glob in globs)
        )

    def unmatched(self, pattern: str) -> list[str]:
        """Return the words of a pattern that match no row of this task."""
        words = words_of(pattern)
        rows = self._rows_for(set(words))
        known = {"all", *(row.set for row in rows), *(row.id for row in rows)}
        return [
            word
            for word in words
            if word not in known and not (_is_glob(word) and any(fnmatch.fnmatchcase(row.id, word) for row in rows))
        ]

    def narrowed(self, pattern: str) -> str:
        """Return the words of a pattern that match rows of this task."""
        unmatched = set(self.unmatched(pattern))
        return ",".join(word for word in words_of(pattern) if word not in unmatched)

    def select(self, pattern: str | None, op: str | None = None, default: RowSet = "smoke") -> tuple[Workload, ...]:
        """Return the rows that match a pattern, else those of one set. Every word of the pattern must match a row."""
        wanted = pattern or default
        rows = tuple(row for row in self.matching(wanted) if op is None or row.op == op)
        unmatched = self.unmatched(wanted)
        if unmatched or not rows:
            of_op = f" of op {op}" if op else ""
            raise KernwrightError(
                f"task {self.name} has no rows{of_op} that match {','.join(unmatched) or wanted!r}",
                f"kernwright task show {self.name} lists its rows; --rows takes a glob or a set's name",
            )
        return rows

    def _rows_for(self, words: set[str]) -> tuple[Workload, ...]:
        """Return the rows that may match. Rows of grids are left out if no word can mean one."""
        known = {"production", "smoke"} | {row.id for row in self.rows}
        return self.rows if known >= words else (*self.rows, *self.grid_rows)


def words_of(pattern: str) -> list[str]:
    return list(dict.fromkeys(word for part in pattern.split(",") if (word := part.strip())))


def _is_glob(word: str) -> bool:
    return bool(set(word) & set("*?["))


def tasks_with_rows(tasks: Sequence[Task], pattern: str, *, named: bool) -> list[Task]:
    """Return the tasks that have matching rows.

    A task that was named must have some, and every word of the pattern must match in one of them.
    """
    having = [task for task in tasks if task.has(pattern)]
    without = [task.name for task in tasks if task not in having] if named else []
    unmatched = [word for word in words_of(pattern) if not any(task.has(word) for task in having)]
    if without or unmatched or not having:
        whose = ", ".join(without or [task.name for task in tasks]) if named else "any task"
        raise KernwrightError(
            f"no rows of {whose} match {pattern if without else ','.join(unmatched) or pattern!r}",
            "kernwright task show TASK lists a task's rows; --rows takes globs over ids, or sets' names",
        )
    return having


def load_task(folder: Path) -> Task:
    remedy = "a task folder holds task.toml and workloads.jsonl"
    file = read_toml(folder / TASK_FILE, TaskFile, remedy)
    ops = ops_from_file(folder / file.definitions) if file.definitions else shipped_ops()
    rows = tuple(read_jsonl(folder / ROWS_FILE, Workload, remedy))
    if not rows:
        raise BadFile(folder / ROWS_FILE, "", "holds no rows", "write one JSON object a line")
    seen: set[str] = set()
    for number, row in enumerate(rows, 1):
        where = f"{folder / ROWS_FILE}: row {number} ({row.id})"
        if row.id in seen:
            raise BadFile(where, "id", "is used twice", "give every row an id of its own")
        seen.add(row.id)
        _check_row(where, row, ops, file)
    grids = _read_grids(folder, ops, file)
    used = {name: ops[name] for name in dict.fromkeys([*(row.op for row in rows), *(grid.op for grid in grids)])}
    policy = TimingPolicy.resolved(file.timing)
    return Task(folder=folder, file=file, ops=used, rows=rows, grids=grids, policy=policy)


def _read_grids(folder: Path, ops: dict[str, Op], file: TaskFile) -> tuple[Grid, ...]:
    if not (folder / GRID_FILE).exists():
        return ()
    grids = tuple(read_jsonl(folder / GRID_FILE, Grid, "write one JSON object a line; see CONTRIBUTING"))
    seen: set[str] = set()
    for number, grid in enumerate(grids, 1):
        where = f"{folder / GRID_FILE}: grid {number} ({grid.id})"
        if grid.id in seen:
            raise BadFile(where, "id", "is used twice", "give every grid an id of its own")
        seen.add(grid.id)
        for dtype in grid.dtypes:
            one = grid.model_copy(update={"dtypes": (dtype,)})
            op = ops.get(grid.op)
            _check_row(where, next(one.rows(op.inplace if op else ())), ops, file)
    return grids


def _check_row(where: str, row: Workload, ops: dict[str, Op], file: TaskFile) -> None:
    op = ops.get(row.op)
    if op is None:
        raise BadFile(where, "op", f"{row.op} is not defined", f"use one of: {', '.join(sorted(ops))}")
    required = {p.name for p in op.tensor_parameters if not p.optional}
    known = {p.name for p in op.tensor_parameters}
    if missing := required - set(row.inputs):
        raise BadFile(where, "inputs", f"lacks {sorted(missing)}", f"{op.name} needs {sorted(required)}")
    if strange := set(row.inputs) - known:
        raise BadFile(where, "inputs", f"{op.name} takes no {sorted(strange)}", f"it takes {sorted(known)}")
    if tuple(row.outputs) != op.outputs:
        raise BadFile(where, "outputs", f"are {list(row.outputs)}", f"{op.name} gives {list(op.outputs)}, in order")
    if strange := set(row.scalars) - set(op.scalar_defaults):
        raise BadFile(where, "scalars", f"{op.name} takes no {sorted(strange)}", f"use {sorted(op.scalar_defaults)}")
    for name, tensor in row.results(op.inplace).items():
        if tensor.dtype not in file.tolerance:
            raise BadFile(where, name, f"no tolerance for {tensor.dtype}", "add it to tolerance in task.toml")
    if row.bytes_min != (fewest := row.fewest_bytes(op.inplace)):
        raise BadFile(where, "bytes_min", f"is {row.bytes_min}", f"the row's tensors add up to {fewest}")
