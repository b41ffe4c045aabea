"""kernwright task new: make a task from a capture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.admission.draft import Draft
    from kernwright.admission.op_draft import OpDraft


def new(
    name: Annotated[str, typer.Argument(help="name of the task: lower-case letters, digits, _")],
    source: Annotated[
        Path | None, typer.Option("--from", metavar="CAPTURE", help="capture file of `kernwright capture`")
    ] = None,
    hotspot: Annotated[
        str | None,
        typer.Option(
            "--from-hotspot",
            metavar="TRACE:NUMBER",
            help="hotspot of a trace, with its number in `kernwright hotspots`",
        ),
    ] = None,
    op: Annotated[
        str | None,
        typer.Option(help="op that the captured function computes; with --draft-op, the name of the new op"),
    ] = None,
    draft_op: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="captured function of your project from which a new op is drafted; also SCRIPT.py:FUNCTION",
        ),
    ] = None,
    call: Annotated[
        str | None, typer.Option(help="captured function to use, if the file has several: module:function")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="NAME=ARGUMENT",
            help="use this argument or result of the call as the op's tensor, scalar or output NAME; repeatable",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="ARGUMENT", help="tensor or string argument that does not affect results; repeatable"),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="model in which the calls were captured; repeatable")] = None,
    title: Annotated[str, typer.Option(help="title of the task, one line")] = "",
    definitions: Annotated[
        Path | None, typer.Option(help="Python file that defines an op that Kernwright does not ship")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the task; default: tasks/NAME")] = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite an existing task")] = False,
) -> None:
    """Make a task from a capture. Each signature becomes a production row. Smoke rows are small enough for a CPU.

    With --from-hotspot, the rows have the shapes of a trace, and an op is drafted from the trace's operators.
    """
    from kernwright.core.errors import KernwrightError

    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise KernwrightError(
            f"{name!r} cannot be a task's name", "use lower-case letters, digits and _, and begin with a letter"
        )
    if (source is None) == (hotspot is None):
        raise KernwrightError(
            "exactly one of --from and --from-hotspot must be given",
            "give --from CAPTURE, or --from-hotspot TRACE:NUMBER",
        )
    place = folder or Path("tasks") / name
    if source is not None:
        from kernwright.admission.capture_task import CaptureTask

        made = CaptureTask(
            name=name, source=source, op=op, drafted_call=draft_op, call=call, pairs=mapping or [],
            ignored=ignore or [], models=model or [], title=title, definitions=definitions,
        )  # fmt: skip
        draft, drafted = made.write(place, force)
        _report(draft, drafted, place, str(place) if folder else name)
    else:
        from kernwright.diagnose.task_draft.hotspot_task import HotspotTask

        _refuse_options_of_captures(draft_op=draft_op, call=call, map=mapping, ignore=ignore, definitions=definitions)
        task = HotspotTask(name=name, hotspot=str(hotspot), op=op, models=model or [], title=title)
        draft, notes = task.write(place, force)
        for note in notes:
            say(f"  note: {note}")
        _report(draft, None, place, str(place))


def _refuse_options_of_captures(**given: object) -> None:
    from kernwright.core.errors import KernwrightError

    used = ", ".join(f"--{name.replace('_', '-')}" for name, value in given.items() if value)
    if used:
        raise KernwrightError(f"{used} was given with --from-hotspot", "leave it out: the op is drafted from the trace")


def _report(draft: Draft, drafted: OpDraft | None, place: Path, task: str) -> None:
    counts = {kind: sum(row.set == kind for row in draft.rows) for kind in ("production", "smoke")}
    say(f"{place}: {counts['production']} production row(s), {counts['smoke']} smoke row(s)")
    if drafted is not None:
        say(f"{place / str(draft.file.definitions)}: {drafted.heading}")
    # A drafted op has parameters or constants for all arguments that its function uses.
    unused = () if drafted is None else ("not used: ",)
    for note in (*(drafted.notes if drafted else ()), *(n for n in draft.notes if not n.startswith(unused))):
        say(f"  note: {note}")
    say(f"Next: read {place / draft.file.definitions}, then" if draft.file.definitions else "Next:")
    say(f"  kernwright task check {task}")
