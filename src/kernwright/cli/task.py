"""kernwright task: the frozen tasks, their rows, and whether they would let a wrong kernel pass."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True, help="Frozen tasks: list them, show their rows, check that they reject mutants."
)


@app.command("list")
def list_tasks() -> None:
    """Lists the tasks that can be found by name."""
    from kernwright.cli.console import out
    from kernwright.tasks.catalog import list_tasks

    for name, folder in list_tasks().items():
        out.print(f"{name}  [dim]{folder}")


@app.command()
def show(task: Annotated[str, typer.Argument(help="a task's name, or its folder")]) -> None:
    """Shows a task's rows and digest."""
    from rich.table import Table

    from kernwright.cli.console import out
    from kernwright.tasks.catalog import find_task

    loaded = find_task(task)
    table = Table(title=f"{loaded.name}: {loaded.file.title}", caption=f"digest {loaded.digest}")
    for column in ("row", "set", "op", "sizes", "MB", "models"):
        table.add_column(column, justify="right" if column == "MB" else "left")
    for row in loaded.rows:
        sizes = " ".join(f"{axis}={size}" for axis, size in row.axes.items())
        table.add_row(row.id, row.set, row.op, sizes, f"{row.bytes_min / 1e6:.2f}", ", ".join(row.models))
    out.print(table)


@app.command()
def check(
    task: Annotated[str, typer.Argument(help="a task's name, or its folder")],
    rows: Annotated[
        str | None, typer.Option(help="a glob over row ids, or a set's name; by default the smoke rows")
    ] = None,
) -> None:
    """Admits a task only if its rows and tolerances reject every mutant. Exit status 1: refused."""
    from kernwright.cli.console import Bar, out
    from kernwright.report.table import admission_table
    from kernwright.tasks.admission import admit
    from kernwright.tasks.catalog import find_task

    loaded = find_task(task)
    with Bar() as bar:
        admission = admit(loaded, loaded.select(rows), bar)
    out.print(admission_table(admission))
    raise typer.Exit(0 if admission.admitted else 1)
