"""kernwright task: list, show, make and check tasks."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import TaskName, complete_rows
from kernwright.cli.output import say
from kernwright.cli.tasks.new_task import new

if TYPE_CHECKING:
    from kernwright.core.op import Op

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, make and check tasks: the frozen rows that kernels are judged on.",
)


@app.command("list")
def list_tasks(
    digests: Annotated[bool, typer.Option("--digests", help="check the tasks' files and show their digests")] = False,
) -> None:
    """List all tasks: number of rows, title, ops."""
    from kernwright.cli.columns import print_columns
    from kernwright.core.errors import KernwrightError
    from kernwright.tasks.catalog import list_tasks
    from kernwright.tasks.summary import TaskSummary

    sets = ("production", "smoke", "grid")
    rows: list[tuple[list[str], list[str]]] = []
    for name, folder in list_tasks().items():
        try:
            summary = TaskSummary.read(folder)
            own = [_digest_of(folder)[:12]] if digests else []
        except KernwrightError as error:  # one bad file must not hide the others
            rows.append(([name, *[""] * len(sets), *([""] if digests else [])], [f"error: {error.cause}"]))
            continue
        counts = [str(summary.rows[each]) for each in sets]
        rows.append(([name, *counts, *own], [summary.title, f"ops: {', '.join(summary.ops)}"]))
    print_columns(["task", *sets, *(["digest"] if digests else []), "title"], rows, numbers=sets)


def _digest_of(folder: Path) -> str:
    from kernwright.tasks.task import load_task

    return load_task(folder).digest


@app.command()
def show(
    task: TaskName,
    rows: Annotated[
        str | None,
        typer.Option(
            help="row ids, globs or sets (production, smoke, grid, all), separated by commas; "
            "default: production and smoke",
            autocompletion=complete_rows,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the whole task as one JSON object")] = False,
) -> None:
    """Show the rows, the ops and the digest of a task."""
    from kernwright.cli.columns import print_columns
    from kernwright.core.parsed_op import ParsedOp
    from kernwright.tasks.catalog import find_task

    loaded = find_task(task)
    chosen = loaded.select(rows) if rows else loaded.matching("production,smoke")
    if as_json:
        described = {
            **loaded.file.model_dump(mode="json", exclude={"timing"}),
            "digest": loaded.digest,
            "policy": loaded.policy.model_dump(mode="json"),
            "ops": {name: op.digest for name, op in loaded.schemas.items()},
            "rows": [row.model_dump(mode="json", exclude_none=True) for row in chosen],
        }
        say(json.dumps(described, indent=1))
        return
    ops = list(dict.fromkeys(row.op for row in chosen))
    for op in ops:
        schema = loaded.schemas[op]
        signature, doc = (schema.signature, schema.doc) if isinstance(schema, ParsedOp) else _imported(loaded.ops[op])
        say(signature)
        for line in doc.splitlines()[:1]:
            say(f"    {line} ({schema.contract})")
    say(f"\n{loaded.name}: {loaded.file.title}\n")
    rows_shown = []
    for row in chosen:
        sizes = " ".join(f"{axis}={size}" for axis, size in row.axes.items())
        optional = [each.name for each in loaded.schemas[row.op].tensor_parameters if each.optional]
        about = [
            " ".join([sizes, *(f"+{name}" for name in optional if name in row.inputs)]).strip(),
            f"op: {row.op}" if len(ops) > 1 else "",
            f"models: {', '.join(row.models)}" if row.models else "",
        ]
        rows_shown.append(([row.id, row.set, f"{row.bytes_min / 1e6:.2f}"], about))
    print_columns(["row", "set", "MB", "sizes"], rows_shown, numbers=["MB"])
    say(f"\ndigest {loaded.digest}")


def _imported(op: Op) -> tuple[str, str]:
    """Return the signature and the docstring of an op whose definition had to be imported."""
    return f"{op.name}{inspect.signature(op.reference)}", op.reference.__doc__ or ""


app.command()(new)


@app.command()
def check(
    task: TaskName,
    rows: Annotated[
        str | None,
        typer.Option(help="globs over row ids, or sets of rows; default: smoke", autocompletion=complete_rows),
    ] = None,
) -> None:
    """Check that the rows and tolerances of a task reject every mutant (wrong kernel) of its ops.

    The result is kept in the task's folder. A verdict on a task that is not admitted contains a warning.

    Exit status 0: admitted; 1: refused.
    """
    from kernwright.admission.admission import admit
    from kernwright.cli.console import ProgressBar, out
    from kernwright.core.errors import EnvironmentProblem
    from kernwright.report.table import admission_table
    from kernwright.tasks.admission_file import write_admission
    from kernwright.tasks.catalog import find_task

    loaded = find_task(task)
    chosen = loaded.select(rows)
    with ProgressBar() as bar:
        admission = admit(loaded, chosen, bar)
    left_out = sorted(set(loaded.ops) - {row.op for row in chosen}) or (["other rows"] if rows else [])
    out.print(admission_table(admission, left_out))
    if not left_out or not admission.admitted:
        try:
            write_admission(loaded, admission.admitted)
        except EnvironmentProblem as problem:  # the exit status tells the result of the check
            say(f"warning: {problem}", err=True)
    if not left_out and admission.admitted:
        op = next(iter(loaded.ops))
        say("  next    write a candidate (docs/candidates.md), or generate a first one, then judge it:")
        say(f"            kernwright candidate new --op {op} --language cpp")
        say(f"            kernwright judge {task} --candidate FOLDER --quick")
    raise typer.Exit(0 if admission.admitted else 1)
