"""The tools of tasks: the list, and one task with its ops and rows."""

from __future__ import annotations

import os
import threading
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.mcp.answer import Limit, Offset, PagedAnswer, call, page_of
from kernwright.mcp.folders import AllowedFolders
from kernwright.tasks.catalog import list_tasks
from kernwright.tasks.summary import TASK_FILE, TaskSummary

if TYPE_CHECKING:
    from kernwright.tasks.task import Task

MOST_TASKS = 64  # loaded tasks that are kept
LONGEST_CAUSE = 300
TaskGiven = Annotated[str, Field(description="name of a task, or its folder below a folder of the server")]


class TaskEntry(BaseModel):
    """One task of the list."""

    name: str
    title: str
    ops: list[str]
    production_rows: int
    smoke_rows: int
    grid_rows: int
    error: str | None = Field(default=None, description="why the task's files cannot be read")


class TaskList(PagedAnswer):
    """The tasks that the judge knows."""

    tasks: list[TaskEntry]


class OpEntry(BaseModel):
    """An op of a task."""

    name: str
    signature: str
    about: str
    contract: str
    outputs: list[str]
    inplace: list[str]


class RowEntry(BaseModel):
    """One frozen row."""

    id: str
    op: str
    set: str
    axes: dict[str, int]
    inputs: dict[str, str] = Field(description="dtype and shape of each tensor, such as bf16[1, S, D]")
    outputs: dict[str, str]
    scalars: dict[str, Any]
    models: list[str]
    bytes_min: int


class TaskCard(PagedAnswer):
    """One task: its ops, and a page of its rows."""

    name: str
    title: str
    origin: str
    digest: str
    ops: list[OpEntry]
    tolerance: dict[str, dict[str, float]]
    decides: str = Field(description="the metric that decides a verdict")
    admitted: str = Field(description="whether `kernwright task check` vouches for the task, or why not")
    rows: list[RowEntry]


class TaskTools:
    """Answers about tasks. Loaded tasks are kept until one of their files changes.

    The server runs no code of a task: ops are read from the text of their definitions.
    """

    def __init__(self, folders: AllowedFolders) -> None:
        self._folders = folders
        self._turn = threading.Lock()
        self._loaded: dict[Path, tuple[object, Task]] = {}

    def tasks_list(
        self,
        words: Annotated[str, Field(description="only tasks whose name, title or ops contain all of these words")] = "",
        offset: Offset = 0,
        limit: Limit = 20,
    ) -> TaskList:
        """List the tasks: frozen rows of production calls on which the judge compares a candidate with a baseline."""
        entries = [self._entry(name, folder) for name, folder in list_tasks().items()]
        wanted = words.casefold().split()
        found = [
            each
            for each in entries
            if all(word in f"{each.name} {each.title} {' '.join(each.ops)}".casefold() for word in wanted)
        ]
        shown, paging = page_of(found, offset, limit)
        after = [call("task_show", "read the ops and rows of a task", task=shown[0].name)] if shown else []
        if not found and entries:
            after = [call("tasks_list", "list all tasks")]
        return TaskList(tasks=shown, next=after, **paging)

    def task_show(
        self,
        task: TaskGiven,
        rows: Annotated[
            str | None, Field(description="globs over row ids, or production, smoke, grid, all; separated by commas")
        ] = None,
        offset: Offset = 0,
        limit: Limit = 10,
    ) -> TaskCard:
        """Show a task: signatures and contracts of its ops, tolerances, digest, and a page of its rows."""
        from kernwright.tasks.admission_file import why_not_admitted

        loaded = self.load(task)
        chosen = loaded.select(rows) if rows else loaded.matching("production,smoke")
        shown, paging = page_of([row.id for row in chosen], offset, limit)
        ids = set(shown)
        op = next(iter(loaded.schemas))
        return TaskCard(
            name=loaded.name,
            title=loaded.file.title,
            origin=loaded.file.origin,
            digest=loaded.digest,
            ops=[_op(loaded, name) for name in loaded.schemas],
            tolerance={dtype: limits.model_dump() for dtype, limits in loaded.file.tolerance.items()},
            decides=loaded.policy.decides,
            admitted=why_not_admitted(loaded) or "yes",
            rows=[_row(row) for row in chosen if row.id in ids],
            next=[
                call("candidate_write", f"write a kernel for {op}", name=f"my_{op.strip('_')}"),
                call("verdicts_list", "see what was judged before", task=loaded.name),
            ],
            **paging,
        )

    def load(self, task: str) -> Task:
        """Return a task by its name, or by a folder that the server may read."""
        from kernwright.tasks.task import load_task

        folder = self.folder(task)
        stamp = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.iterdir()))
        with self._turn:
            kept = self._loaded.get(folder)
            if kept is None or kept[0] != stamp:
                if len(self._loaded) >= MOST_TASKS:
                    self._loaded.clear()
                _refuse_import(folder)
                kept = self._loaded[folder] = (stamp, load_task(folder))
        return kept[1]

    def folder(self, task: str) -> Path:
        """Return the folder of a task. Raises an error if there is none that the server may read."""
        known = list_tasks()
        if task in known:
            return self._checked(known[task])
        if "/" in task:
            folder = self._folders.folder(task)
            if (folder / TASK_FILE).is_file():
                return self._checked(folder)
        remedy = did_you_mean(task[:100], known, "list the tasks with tasks_list")
        raise KernwrightError(f"no task named {task[:100]!r}", remedy)

    def _checked(self, folder: Path) -> Path:
        """Return a task's folder if its files may be read. A folder that the user named elsewhere is not checked."""
        if self._folders.contains(Path(os.path.abspath(folder))):  # noqa: PTH100 - a link must not decide it
            self._folders.check_entries(self._folders.folder(str(folder)))
        return folder

    def _entry(self, name: str, folder: Path) -> TaskEntry:
        try:
            summary = TaskSummary.read(self._checked(folder))
        except KernwrightError as error:
            return TaskEntry(
                name=name,
                title="",
                ops=[],
                production_rows=0,
                smoke_rows=0,
                grid_rows=0,
                error=error.cause[:LONGEST_CAUSE],
            )
        return TaskEntry(
            name=name,
            title=summary.title,
            ops=list(summary.ops),
            production_rows=summary.rows["production"],
            smoke_rows=summary.rows["smoke"],
            grid_rows=summary.rows["grid"],
        )


def _refuse_import(folder: Path) -> None:
    """Raise an error if loading a task would import its definitions, which may do anything."""
    from kernwright.core.parsed_op import NeedsImport, ParsedModule

    try:
        definitions = tomllib.loads((folder / TASK_FILE).read_text(encoding="utf-8")).get("definitions")
        if definitions is None:
            return
        ops = ParsedModule.read(folder / str(definitions)).ops()
        if ops and all(op.digest for op in ops.values()):
            return
        reason = "it defines no op"
    except (tomllib.TOMLDecodeError, SyntaxError):
        return  # loading the task raises the error that names the line
    except (NeedsImport, OSError, ValueError) as error:
        reason = str(error)
    raise KernwrightError(
        f"the definitions of task {folder.name} cannot be read without running them: {reason}"[:LONGEST_CAUSE],
        f"write each op as a plain function under @define, or use the command line: kernwright task show {folder}",
    )


def _op(task: Task, name: str) -> OpEntry:
    schema = task.schemas[name]
    return OpEntry(
        name=name,
        signature=schema.signature,
        about=schema.doc.strip().partition("\n")[0],
        contract=schema.contract,
        outputs=list(schema.outputs),
        inplace=list(schema.inplace),
    )


def _row(row: Any) -> RowEntry:
    return RowEntry(
        id=row.id,
        op=row.op,
        set=row.set,
        axes=dict(row.axes),
        inputs={name: _tensor(tensor) for name, tensor in row.inputs.items()},
        outputs={name: _tensor(tensor) for name, tensor in row.outputs.items()},
        scalars=dict(row.scalars),
        models=list(row.models),
        bytes_min=row.bytes_min,
    )


def _tensor(tensor: Any) -> str:
    strides = f", strides {list(tensor.strides)}" if tensor.strides is not None else ""
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]{strides}"
