"""Remedies: the file and the line to change when a task is refused."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path

from kernwright.admission.mutants import result_specs
from kernwright.core.op import Op
from kernwright.tasks.task import ROWS_FILE, TASK_FILE, Task
from kernwright.tasks.tensor import axes_of
from kernwright.tasks.workload import Workload

ODD_ROW = "skipped tail (last vector of an odd row)"


def remedy_for_mutant(task: Task, op: Op, mutant: str, survived: Sequence[str]) -> str:
    """Return `file:line: problem: change` for a mutant that some rows did not reject."""
    kind, _, argument = mutant.rstrip(")").partition(" (")
    rows = [row for row in task.rows if row.id in survived]
    if mutant == ODD_ROW and (missing := _missing_neighbours(task, op, rows)):
        wanted = json.dumps([*task.file.neighbours, *missing])
        return (
            f"{neighbours_line(task)}: odd sizes of {', '.join(missing)} are not checked: write neighbours = {wanted}"
        )
    if kind == "low precision":
        return (
            f"{row_line(task, survived)}: too few elements to tell a wrong rounding from a right one: make the row "
            "larger; a width of 1024 is enough for the ops that ship"
        )
    if kind == "dropped term":
        return f"{op_line(task, op, argument)}: no output depends on {argument}: use it, or remove the parameter"
    if kind == "wrong broadcast":
        return (
            f"{op_line(task, op, argument)}: outputs hardly depend on the order of the values in {argument}: use it "
            "as the program does, or name it in activations if it is data"
        )
    if kind in ("zeros", "identity", "constant", "stale output"):
        return (
            f"{op_line(task, op)}: the op's own error is so large that this output passes: compute in wide(x), "
            "see kernwright.core.rounding"
        )
    return f"{row_line(task, survived)}: this row does not reject it: make the row larger, or its values count"


def remedy_for_reference(task: Task, op: Op, problem: str) -> str:
    """Return `file:line: problem: change` for an op whose own reference fails the check."""
    if "differs in its bits" in problem or "NaN or Inf" in problem:
        return (
            f"{op_line(task, op)}: the op does not give the same result twice: remove random numbers and uninitialised "
            "memory, or set propagates_nonfinite=False if it hides NaN"
        )
    if "shares memory" in problem:
        return f"{op_line(task, op)}: an output must be memory of its own: return a copy, as in y.clone()"
    if " fails at " in problem:
        return f"{neighbours_line(task)}: remove the axis at whose neighbouring sizes the op fails, or correct the op"
    return f"{op_line(task, op)}: correct the op, which fails its own check"


def _missing_neighbours(task: Task, op: Op, rows: Sequence[Workload]) -> list[str]:
    last = axes_of(tensor.shape[-1] for row in rows for tensor in result_specs(op, row))
    return sorted(last - set(task.file.neighbours))


def neighbours_line(task: Task) -> str:
    return _line(task.folder / TASK_FILE, r"\s*neighbours\b")


def row_line(task: Task, ids: Sequence[str]) -> str:
    """Return the line of the first of these rows."""
    pattern = "|".join(re.escape(json.dumps(row)) for row in ids)
    return _line(task.folder / ROWS_FILE, rf'.*"id"\s*:\s*({pattern})')


def op_line(task: Task, op: Op, parameter: str | None = None) -> str:
    """Return the line of an op's definition, or that of one of its parameters."""
    try:
        lines, start = inspect.getsourcelines(op.reference)
        path = Path(str(inspect.getsourcefile(op.reference)))
    except (OSError, TypeError):
        return str(task.folder / (task.file.definitions or TASK_FILE))
    first = next((n for n, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    wanted = rf"\b{re.escape(parameter)}\s*:" if parameter else ""
    place = next((n for n, line in enumerate(lines) if n >= first and wanted and re.search(wanted, line)), first)
    return f"{_short(path)}:{start + place}"


def _line(path: Path, pattern: str) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    number = next((number for number, line in enumerate(lines, 1) if re.match(pattern, line)), 1)
    return f"{_short(path)}:{number}"


def _short(path: Path) -> Path:
    """Return a path relative to the current folder, if it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
