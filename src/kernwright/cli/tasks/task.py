"""kernwright task: the frozen tasks, their rows, and whether they would let a wrong kernel pass."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import TaskName, complete_rows
from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.capture.capture import Capture
    from kernwright.core.op import Op

app = typer.Typer(
    no_args_is_help=True,
    help="Frozen tasks: list them, show their rows, make one of a capture, check that they reject mutants.",
)


@app.command("list")
def list_tasks(
    digests: Annotated[bool, typer.Option("--digests", help="Check the tasks' files and show their digests.")] = False,
) -> None:
    """List all tasks: title, number of rows, ops."""
    from rich.table import Table
    from rich.text import Text

    from kernwright.cli.console import listing
    from kernwright.core.errors import KernwrightError
    from kernwright.tasks.catalog import list_tasks
    from kernwright.tasks.summary import TaskSummary

    sets = ("production", "smoke", "grid")
    table = Table()
    table.add_column("task", no_wrap=True)
    for column in sets:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("title and ops")
    if digests:
        table.add_column("digest", no_wrap=True)
    for name, folder in list_tasks().items():
        try:
            summary = TaskSummary.read(folder)
            own = [_digest_of(folder)[:12]] if digests else []
        except KernwrightError as error:  # one bad file must not hide the others
            table.add_row(name, *[""] * len(sets), Text(error.cause, style="bold red"), *([""] if digests else []))
            continue
        text = Text(summary.title).append(f"\n{', '.join(summary.ops)}", style="dim")
        table.add_row(name, *(str(summary.rows[each]) for each in sets), text, *own)
    listing.print(table)


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
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole task as one JSON object.")] = False,
) -> None:
    """Show the rows, the ops and the digest of a task."""
    from rich.table import Table
    from rich.text import Text

    from kernwright.cli.console import listing
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
        typer.echo(json.dumps(described, indent=1))
        return
    ops = list(dict.fromkeys(row.op for row in chosen))
    for op in ops:
        schema = loaded.schemas[op]
        signature, doc = (schema.signature, schema.doc) if isinstance(schema, ParsedOp) else _imported(loaded.ops[op])
        say(signature)
        for line in doc.splitlines()[:1]:
            say(f"    {line} ({schema.contract})")
    table = Table(title=f"{loaded.name}: {loaded.file.title}", caption=f"digest {loaded.digest}")
    table.add_column("row", no_wrap=True)
    table.add_column("set", no_wrap=True)
    table.add_column("MB", justify="right", no_wrap=True)
    table.add_column("sizes, op, models" if len(ops) > 1 else "sizes, models", overflow="fold")
    for row in chosen:
        about = Text(" ".join(f"{axis}={size}" for axis, size in row.axes.items()))
        about.append(f"\n{row.op}" if len(ops) > 1 else "")
        about.append(f"\n{', '.join(row.models)}" if row.models else "", style="dim")
        table.add_row(row.id, row.set, f"{row.bytes_min / 1e6:.2f}", about)
    listing.print(table)


def _imported(op: Op) -> tuple[str, str]:
    """Return the signature and the docstring of an op whose definition had to be imported."""
    return f"{op.name}{inspect.signature(op.reference)}", op.reference.__doc__ or ""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="the task's name: small letters, digits, _")],
    source: Annotated[Path, typer.Option("--from", metavar="CAPTURE", help="a file that kernwright capture wrote")],
    op: Annotated[str, typer.Option(help="the op that the captured function computes")],
    call: Annotated[
        str | None, typer.Option(help="the captured function, if the file holds several: module:function")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="NAME=ARGUMENT", help="where the op's tensor or scalar is in the call; repeatable"
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="ARGUMENT", help="a tensor or text of the call that no result depends on; repeatable"),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="the model it was captured from; repeatable")] = None,
    title: Annotated[str, typer.Option(help="what the task is about, in a line")] = "",
    definitions: Annotated[
        Path | None, typer.Option(help="a Python file that defines the op, if Kernwright does not ship it")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="the task's folder; by default tasks/NAME")] = None,
    force: Annotated[bool, typer.Option("--force", help="write over a task that exists")] = False,
) -> None:
    """Makes a task of a capture: every signature a production row, and smoke rows cut down to fit a CPU."""
    from kernwright.admission.captured_row import DraftRequest
    from kernwright.admission.draft import draft_task
    from kernwright.admission.task_folder import write_task
    from kernwright.admission.unmapped_arguments import refuse_another_op, refuse_unmapped_arguments
    from kernwright.capture.capture import read_capture
    from kernwright.capture.own_ops import op_of, settings_of
    from kernwright.cli.console import out
    from kernwright.core.errors import KernwrightError
    from kernwright.core.registry import ops_from_file, shipped_ops

    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise KernwrightError(f"{name!r} cannot be a task's name", "use small letters, digits and _, a letter first")
    capture = read_capture(source)
    ops = ops_from_file(definitions) if definitions else shipped_ops()
    if op not in ops:
        raise KernwrightError(
            f"--op {op}: no such op", f"use one of: {', '.join(sorted(ops))}; or bring it along with --definitions"
        )
    called = _captured(capture, source, call, op)
    request = DraftRequest(
        name=name, source=source, call=called, op=ops[op], mapping=_pairs(mapping or [], ops[op]),
        models=tuple(model or ()), title=title, settings=settings_of(ops[op]) if op_of(called) == op else {},
    )  # fmt: skip
    draft = draft_task(capture, request, definitions.name if definitions else None)
    refuse_unmapped_arguments(capture, request, ignore or [])
    if call is None and definitions is None:
        refuse_another_op(request)
    place = folder or Path("tasks") / name
    write_task(draft, place, definitions, force)
    counts = {kind: sum(row.set == kind for row in draft.rows) for kind in ("production", "smoke")}
    out.print(f"{place}: {counts['production']} production row(s), {counts['smoke']} smoke row(s)", highlight=False)
    for note in draft.notes:
        out.print(f"  note: {note}", highlight=False, markup=False)
    out.print("Next: look at the tolerances and the neighbours in task.toml, then", highlight=False)
    out.print(f"  kernwright task check {place if folder else name}", highlight=False, markup=False)


def _captured(capture: Capture, source: Path, call: str | None, op: str) -> str:
    """The function to make rows of: the one that was named, the only one, or the op's own public call."""
    from kernwright.capture.own_ops import target_of
    from kernwright.core.errors import BadFile

    known = sorted({captured.call for captured in capture.calls})
    if call is None and len(known) == 1:
        return known[0]
    if call is None and target_of(op) in known:
        return target_of(op)
    if call in known:
        return call
    problem = "holds calls of several functions" if call is None else f"holds no call of {call}"
    if not known:
        problem = "holds no calls"
    raise BadFile(source, "call", problem, f"--call with one of: {', '.join(known) or '(none: capture again)'}")


def _pairs(mapping: list[str], op: Op) -> dict[str, str]:
    from kernwright.core.errors import KernwrightError

    known = [*(parameter.name for parameter in op.tensor_parameters), *op.scalar_defaults, *op.outputs]
    pairs = {}
    for pair in mapping:
        name, equals, argument = pair.partition("=")
        if not equals or not argument:
            raise KernwrightError(f"--map {pair}: is not NAME=ARGUMENT", "as in --map x=hidden_states")
        if name not in known:
            raise KernwrightError(f"--map {pair}: {op.name} has no {name}", f"it has: {', '.join(known)}")
        pairs[name] = argument
    return pairs


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
