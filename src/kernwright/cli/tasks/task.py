"""kernwright task: the frozen tasks, their rows, and whether they would let a wrong kernel pass."""

from __future__ import annotations

import inspect
import json
from typing import Annotated

import typer

from kernwright.cli.output import say
from kernwright.cli.tasks.new_task import new

app = typer.Typer(
    no_args_is_help=True,
    help="Frozen tasks: list them, show their rows, make one of a capture, check that they reject mutants.",
)


@app.command("list")
def list_tasks() -> None:
    """Lists the tasks that can be found by name."""
    from collections import Counter

    from rich.table import Table
    from rich.text import Text

    from kernwright.cli.console import out
    from kernwright.core.errors import KernwrightError
    from kernwright.tasks.catalog import list_tasks
    from kernwright.tasks.task import load_task

    table = Table()
    for column in ("task", "title", "production", "smoke", "grid", "ops", "digest"):
        numbers = column in ("production", "smoke", "grid")
        table.add_column(column, justify="right" if numbers else "left", no_wrap=column in ("task", "digest"))
    for name, folder in list_tasks().items():
        try:
            task = load_task(folder)
        except KernwrightError as error:  # one bad file must not hide the others
            table.add_row(name, Text(error.cause, style="bold red"), *[""] * 5)
            continue
        counts = Counter(row.set for row in task.rows)
        counts["grid"] += sum(grid.size for grid in task.grids)  # whose rows take long to write out
        shown = [str(counts[kind]) for kind in ("production", "smoke", "grid")]
        table.add_row(name, Text(task.file.title), *shown, ", ".join(task.ops), task.digest[:12])
    out.print(table)


@app.command()
def show(
    task: Annotated[str, typer.Argument(help="a task's name, or its folder")],
    rows: Annotated[
        str | None,
        typer.Option(help="globs over row ids, or production, smoke, grid, all; by default all that are timed"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="for programs: the whole task, one JSON object")] = False,
) -> None:
    """Shows a task's rows and digest."""
    from rich.table import Table

    from kernwright.cli.console import out
    from kernwright.tasks.catalog import find_task

    loaded = find_task(task)
    chosen = loaded.select(rows) if rows else loaded.matching("production,smoke")
    if as_json:
        described = {
            **loaded.file.model_dump(mode="json", exclude={"timing"}),
            "digest": loaded.digest,
            "policy": loaded.policy.model_dump(mode="json"),
            "ops": {name: op.digest for name, op in loaded.ops.items()},
            "rows": [row.model_dump(mode="json", exclude_none=True) for row in chosen],
        }
        say(json.dumps(described, indent=1))
        return
    for op in dict.fromkeys(row.op for row in chosen):
        reference = loaded.ops[op].reference
        out.print(f"{op}{inspect.signature(reference)}", highlight=False, markup=False)
        for line in (reference.__doc__ or "").splitlines()[:1]:
            out.print(f"    {line} ({loaded.ops[op].contract})", highlight=False, markup=False)
    table = Table(title=f"{loaded.name}: {loaded.file.title}", caption=f"digest {loaded.digest}")
    for column in ("row", "set", "op", "sizes", "MB", "models"):
        table.add_column(column, justify="right" if column == "MB" else "left")
    for row in chosen:
        sizes = " ".join(f"{axis}={size}" for axis, size in row.axes.items())
        table.add_row(row.id, row.set, row.op, sizes, f"{row.bytes_min / 1e6:.2f}", ", ".join(row.models))
    out.print(table)


app.command()(new)


@app.command()
def check(
    task: Annotated[str, typer.Argument(help="a task's name, or its folder")],
    rows: Annotated[
        str | None, typer.Option(help="a glob over row ids, or a set's name; by default the smoke rows")
    ] = None,
) -> None:
    """Admits a task only if its rows and tolerances reject every mutant. Exit status 1: refused."""
    from kernwright.admission.admission import admit
    from kernwright.cli.console import ProgressBar, out
    from kernwright.report.table import admission_table
    from kernwright.tasks.catalog import find_task

    loaded = find_task(task)
    chosen = loaded.select(rows)
    with ProgressBar() as bar:
        admission = admit(loaded, chosen, bar)
    left_out = sorted(set(loaded.ops) - {row.op for row in chosen}) or (["other rows"] if rows else [])
    out.print(admission_table(admission, left_out))
    raise typer.Exit(0 if admission.admitted else 1)
