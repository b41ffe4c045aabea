"""kernwright task new: make a task from a capture."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kernwright.admission.draft import Draft
    from kernwright.admission.op_draft import OpDraft
    from kernwright.capture.capture import Capture
    from kernwright.core.op import Op


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
    from kernwright.admission.task_folder import write_task
    from kernwright.capture.capture import read_capture
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
    if source is None:
        _refuse_options_of_captures(draft_op=draft_op, call=call, map=mapping, ignore=ignore, definitions=definitions)
        place = folder or Path("tasks") / name
        _new_from_hotspot(name, str(hotspot), op, place, force, models=model or [], title=title)
        return
    if draft_op is not None and (definitions is not None or call is not None):
        raise KernwrightError("--draft-op was given with --definitions or --call", "leave --definitions and --call out")
    if draft_op is None and op is None:
        raise KernwrightError(
            "no op is given", "give --op NAME for an op of Kernwright, or --draft-op MODULE:FUNCTION for your own"
        )
    capture = read_capture(source)
    place = folder or Path("tasks") / name
    pairs = list(mapping or [])
    with contextlib.ExitStack() as stack:
        drafted = None
        if draft_op is not None:
            drafted, definitions = stack.enter_context(_drafted(capture, source, draft_op, op, name))
            op, call = drafted.op, drafted.call
            pairs = [*(f"{own}={argument}" for own, argument in drafted.mapping.items()), *pairs]
        draft = _draft_task(
            name, capture, source, op=str(op), call=call, pairs=pairs, definitions=definitions, ignored=ignore or [],
            models=model or [], title=title,
        )  # fmt: skip
        write_task(draft, place, definitions, force)
    _report(draft, drafted, place, str(place) if folder else name)


def _refuse_options_of_captures(**given: object) -> None:
    from kernwright.core.errors import KernwrightError

    used = ", ".join(f"--{name.replace('_', '-')}" for name, value in given.items() if value)
    if used:
        raise KernwrightError(f"{used} was given with --from-hotspot", "leave it out: the op is drafted from the trace")


def _new_from_hotspot(
    name: str, hotspot: str, op: str | None, place: Path, force: bool, *, models: Sequence[str], title: str
) -> None:
    """Make a task from a hotspot of a trace."""
    from kernwright.admission.captured_row import DraftRequest
    from kernwright.admission.draft import draft_task
    from kernwright.admission.op_draft import DEFINITIONS
    from kernwright.admission.task_folder import write_task
    from kernwright.cli.output import say
    from kernwright.core.errors import KernwrightError
    from kernwright.core.registry import ops_from_file
    from kernwright.diagnose.hotspots.ranking import diagnose
    from kernwright.diagnose.recording import read_recording
    from kernwright.diagnose.task_draft.hotspot_op import draft_op_of, hotspot_of

    path, colon, rank = hotspot.rpartition(":")
    if not colon or not path:
        raise KernwrightError(f"--from-hotspot {hotspot}: is not of the form TRACE:NUMBER", "as in trace.json.gz:3")
    drafted = draft_op_of(hotspot_of(diagnose(read_recording(Path(path))), rank), Path(path), op)
    with tempfile.TemporaryDirectory() as temporary:
        definitions = Path(temporary) / DEFINITIONS
        definitions.write_text(drafted.text, encoding="utf-8")
        own = ops_from_file(definitions)[drafted.name]
        request = DraftRequest(
            name=name, source=Path(path), call=drafted.call, op=own, mapping=drafted.mapping, models=tuple(models),
            title=title or f"{drafted.name}, a hotspot of {Path(path).name}",
        )  # fmt: skip
        draft = draft_task(drafted.capture, request, DEFINITIONS)
        write_task(draft, place, definitions, force)
    for note in drafted.notes:
        say(f"  note: {note}")
    _report(draft, None, place, str(place))


@contextlib.contextmanager
def _drafted(capture: Capture, source: Path, call: str, op: str | None, name: str) -> Iterator[tuple[OpDraft, Path]]:
    """Draft an op and write its definitions file into a temporary folder.

    If the task cannot be made from the draft, the file is kept for the user to correct.
    """
    from kernwright.admission.op_draft import DEFINITIONS, draft_op
    from kernwright.core.errors import ExistsAlready, KernwrightError

    draft = draft_op(capture, call, op, source)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DEFINITIONS
        path.write_text(draft.text, encoding="utf-8")
        try:
            yield draft, path
        except KernwrightError as error:
            kept = Path(f"{name}_{DEFINITIONS}")
            if kept.exists() or isinstance(error, ExistsAlready):
                raise
            kept.write_text(draft.text, encoding="utf-8")
            maps = "".join(f" --map {own}={argument}" for own, argument in draft.mapping.items())
            again = f"kernwright task new {name} --from {source} --definitions {kept} --op {draft.op}{maps}"
            cause = error.cause.replace(str(path), str(kept))
            raise KernwrightError(
                f"{cause}\n  the draft of the op is in {kept}", f"correct {kept}, then: {again}"
            ) from error


def _draft_task(
    name: str,
    capture: Capture,
    source: Path,
    *,
    op: str,
    call: str | None,
    pairs: Sequence[str],
    definitions: Path | None,
    ignored: Sequence[str],
    models: Sequence[str],
    title: str,
) -> Draft:
    from kernwright.admission.captured_row import DraftRequest
    from kernwright.admission.draft import draft_task
    from kernwright.admission.unmapped_arguments import refuse_another_op, refuse_unmapped_arguments
    from kernwright.capture.own_ops import op_of, settings_of
    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.core.registry import ops_from_file, shipped_ops

    ops = ops_from_file(definitions) if definitions else shipped_ops()
    if op not in ops:
        remedy = "" if definitions else "; for a function of your own, --draft-op MODULE:FUNCTION"
        known = f"use one of: {', '.join(sorted(ops))}{remedy}"
        raise KernwrightError(f"--op {op}: no such op", did_you_mean(op, ops, known))
    called = _captured(capture, source, call, op)
    request = DraftRequest(
        name=name, source=source, call=called, op=ops[op], mapping=_pairs(pairs, ops[op]), models=tuple(models),
        title=title, settings=settings_of(ops[op]) if op_of(called) == op else {},
    )  # fmt: skip
    draft = draft_task(capture, request, definitions.name if definitions else None)
    refuse_unmapped_arguments(capture, request, ignored)
    if call is None and definitions is None:
        refuse_another_op(request)
    return draft


def _report(draft: Draft, drafted: OpDraft | None, place: Path, task: str) -> None:
    from kernwright.cli.output import say

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


def _pairs(mapping: Sequence[str], op: Op) -> dict[str, str]:
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
