"""kernwright candidate: start a candidate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.tasks.task import Task

app = typer.Typer(no_args_is_help=True, help="Write a first candidate for an op.")


@app.callback()
def candidate() -> None:
    """Keep `new` a subcommand although it is the only one."""


@app.command()
def new(
    op: Annotated[str, typer.Option(help="the op that the candidate implements, of any task")],
    language: Annotated[str, typer.Option(help="triton, cuda, cpp, cutedsl, or python (the eager chain of any op)")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="folder of the candidate; default: OP_LANGUAGE")
    ] = None,
) -> None:
    """Write a first candidate for an op: it builds and is correct, and its constants can be tuned.

    A kernel is generated from the op's definition if the op is elementwise or takes means over the last axis, and uses
    only functions that have generated code. Other ops are refused. For them, --language python copies the eager chain.
    """
    from kernwright.scaffold.candidate.candidate_folder import SPACE_FILE, new_candidate

    task, found = _task_with(op)
    rows = [row for row in (*task.rows, *task.grid_rows) if row.op == op]
    place = folder or Path(f"{op}_{language}")
    written = new_candidate(found, rows, language)
    written.write(place)
    for name in written.files:
        say(f"wrote   {place / name}")
    device = " --device cuda" if written.language in ("cuda", "cutedsl") else ""
    say("Next:")
    say(f"  kernwright judge {task.name} --candidate {place}{device} --quick")
    if SPACE_FILE in written.files:
        told = f"{task.name} --op {op} --language {written.language}"
        timed = "" if written.language == "cpp" else " --device cuda"
        say(f"  kernwright campaign start {told} --from {place}{timed}   # the tuner searches {place / SPACE_FILE}")


def _task_with(op: str) -> tuple[Task, Any]:
    """Return the first task with rows of an op, and the op."""
    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.tasks.catalog import find_task, list_tasks

    known: list[str] = []
    for name in list_tasks():
        task = find_task(name)
        known += task.schemas
        if op in task.schemas:
            return task, task.ops[op]
    raise KernwrightError(
        f"no task has rows of an op {op!r}", did_you_mean(op, known, "list tasks: kernwright task list")
    )
