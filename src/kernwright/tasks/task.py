"""Task: the frozen rows of one family of ops, with tolerances and timing policy."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.digest import digest_of
from kernwright.core.errors import BadFile, FileProblems, KernwrightError, did_you_mean
from kernwright.core.parsed_op import OpSchema, ParsedOp
from kernwright.core.registry import ops_from_file, schemas_of, shipped_ops
from kernwright.tasks.files import read_jsonl, read_toml
from kernwright.tasks.grid import THE_DTYPE, Grid
from kernwright.tasks.policy import TimingOverrides, TimingPolicy
from kernwright.tasks.summary import GRID_FILE as GRID_FILE
from kernwright.tasks.summary import ROWS_FILE as ROWS_FILE
from kernwright.tasks.summary import TASK_FILE as TASK_FILE
from kernwright.tasks.tensor import DType
from kernwright.tasks.workload import RowSet, Workload

if TYPE_CHECKING:
    from kernwright.core.op import Op

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
    """A task as loaded: every op found, every row checked against its op.

    Loading needs only the schemas of the ops. Their functions, and torch with them, are imported on first use.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, ignored_types=(cached_property,))

    folder: Path
    file: TaskFile
    schemas: Mapping[str, Any] = Field(description="OpSchema of every op that a row or a grid uses, by name")
    rows: tuple[Workload, ...]
    grids: tuple[Grid, ...] = ()
    policy: TimingPolicy

    @property
    def name(self) -> str:
        return self.file.name

    @cached_property
    def ops(self) -> dict[str, Op]:
        """The ops, with their functions. The first access imports torch."""
        if not any(isinstance(schema, ParsedOp) for schema in self.schemas.values()):
            return cast("dict[str, Op]", dict(self.schemas))
        definitions = self.file.definitions
        known = ops_from_file(self.folder / definitions) if definitions else shipped_ops()
        return {name: known[name] for name in self.schemas}

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
                "ops": {name: schema.digest for name, schema in self.schemas.items()},
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
        return tuple(row for grid in self.grids for row in grid.rows(self.schemas[grid.op].inplace))

    def at_frozen_sizes(self) -> Task:
        """Return the task without the neighbouring sizes of its rows."""
        return self.model_copy(update={"file": self.file.model_copy(update={"neighbours": ()})})

    def op_of(self, row: Workload) -> Op:
        return self.ops[row.op]

    def tolerance_for(self, dtype: str) -> Tolerance:
        return self.file.tolerance[dtype]  # type: ignore[index]  # load_task has checked that every output has one

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
                did_you_mean(
                    unmatched[0] if unmatched else wanted, self._names(),
                    f"kernwright task show {self.name} lists its rows; --rows takes globs over ids and names of sets",
                ),
            )  # fmt: skip
        return rows

    def _names(self) -> list[str]:
        """Return the words that --rows takes without a wildcard; rows of grids are left out."""
        return ["production", "smoke", "grid", "all", *(row.id for row in self.rows)]

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
            did_you_mean(
                unmatched[0] if unmatched else pattern, [name for task in tasks for name in task._names()],
                "kernwright task show TASK lists a task's rows; --rows takes globs over ids and names of sets",
            ),
        )  # fmt: skip
    return having


def load_task(folder: Path) -> Task:
    """Return the task of a folder. Raises BadFile with all problems of its files."""
    remedy = "a task folder holds task.toml and workloads.jsonl"
    problems = FileProblems()
    file: TaskFile | None = None
    rows: dict[int, Workload] = {}
    grids: dict[int, Grid] = {}
    with problems.collected():
        file = read_toml(folder / TASK_FILE, TaskFile, remedy)
    with problems.collected():
        rows = read_jsonl(folder / ROWS_FILE, Workload, remedy)
        if not rows:
            raise BadFile(folder / ROWS_FILE, "", "holds no rows", "write one JSON object per line")
    if (folder / GRID_FILE).exists():
        with problems.collected():
            grids = read_jsonl(folder / GRID_FILE, Grid, "write one JSON object per line; see CONTRIBUTING")
    used = dict.fromkeys([*(row.op for row in rows.values()), *(grid.op for grid in grids.values())])
    schemas: Mapping[str, OpSchema] = {}
    if file is not None:
        with problems.collected():
            schemas = schemas_of(folder / file.definitions if file.definitions else None, used)
    if file is None or not schemas:
        problems.raise_any()
        raise BadFile(folder / TASK_FILE, "definitions", "names a file without ops", "define an op there")
    problems.add(_row_problems(folder / ROWS_FILE, rows, schemas, file))
    problems.add(_grid_problems(folder / GRID_FILE, grids, schemas, file))
    problems.raise_any()
    return Task.model_construct(  # its parts are valid: validating thousands of tensors again would take long
        folder=folder, file=file, schemas={name: schemas[name] for name in used}, rows=tuple(rows.values()),
        grids=tuple(grids.values()), policy=TimingPolicy.resolved(file.timing),
    )  # fmt: skip


def _row_problems(
    path: Path, rows: Mapping[int, Workload], schemas: Mapping[str, OpSchema], file: TaskFile
) -> Iterator[BadFile]:
    seen: dict[str, int] = {}
    for line, row in rows.items():
        where = f"{path}:{line}: row {row.id}"
        if row.id in seen:
            yield BadFile(where, "id", f"is also that of line {seen[row.id]}", "give every row its own id")
        seen.setdefault(row.id, line)
        yield from _problems_of(where, row, schemas, file)


def _grid_problems(
    path: Path, grids: Mapping[int, Grid], schemas: Mapping[str, OpSchema], file: TaskFile
) -> Iterator[BadFile]:
    seen: dict[str, int] = {}
    for line, grid in grids.items():
        where = f"{path}:{line}: grid {grid.id}"
        if grid.id in seen:
            yield BadFile(where, "id", f"is also that of line {seen[grid.id]}", "give every grid its own id")
        seen.setdefault(grid.id, line)
        yield from _problems_of(where, grid.first, schemas, file)
        op = schemas.get(grid.op)
        changed = [grid.inputs[name] for name in (op.inplace if op else ()) if name in grid.inputs]
        if any(tensor.dtype == THE_DTYPE for tensor in (*grid.outputs.values(), *changed)):
            for dtype in grid.dtypes[1:]:  # the first row has the first of them
                if dtype not in file.tolerance:
                    yield _no_tolerance(where, "dtypes", dtype)


def _problems_of(where: str, row: Workload, schemas: Mapping[str, OpSchema], file: TaskFile) -> Iterator[BadFile]:
    """Yield every problem of a row: with its op's signature, its tolerances and its count of bytes."""
    op = schemas.get(row.op)
    if op is None:
        known = sorted(schemas)
        remedy = did_you_mean(row.op, known, f"use one of: {', '.join(known)}")
        yield BadFile(where, "op", f"{row.op} is not defined", remedy)
        return
    required = {p.name for p in op.tensor_parameters if not p.optional}
    known_inputs = {p.name for p in op.tensor_parameters}
    if missing := required - set(row.inputs):
        yield BadFile(where, "inputs", f"lacks {sorted(missing)}", f"{op.name} needs {sorted(required)}")
    if strange := set(row.inputs) - known_inputs:
        yield BadFile(where, "inputs", f"{op.name} takes no {sorted(strange)}", f"it takes {sorted(known_inputs)}")
    if tuple(row.outputs) != op.outputs:
        yield BadFile(where, "outputs", f"are {list(row.outputs)}", f"{op.name} gives {list(op.outputs)}, in order")
    if strange := set(row.scalars) - set(op.scalar_defaults):
        yield BadFile(where, "scalars", f"{op.name} takes no {sorted(strange)}", f"use {sorted(op.scalar_defaults)}")
    changed = {name: row.inputs[name] for name in op.inplace if name in row.inputs}
    for name, tensor in (row.outputs | changed).items():
        if tensor.dtype not in file.tolerance:
            yield _no_tolerance(where, name, tensor.dtype)
    if row.set != "grid" and row.bytes_min != (fewest := row.fewest_bytes(op.inplace)):
        yield BadFile(where, "bytes_min", f"is {row.bytes_min}", f"the row's tensors add up to {fewest}")


def _no_tolerance(where: str, field: str, dtype: str) -> BadFile:
    return BadFile(where, field, f"no tolerance for {dtype}", "add it to tolerance in task.toml")
