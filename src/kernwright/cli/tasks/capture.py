"""kernwright capture: record the calls of functions in a running program, to make a task from them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import complete_ops
from kernwright.cli.output import refuse_unwritable, say

if TYPE_CHECKING:
    from kernwright.capture.capture import Capture

NEVER_MET = "was never imported or defined; check the spelling, and `What cannot be seen` in docs/capture.md"
NOT_FOUND = 1  # exit status if nothing was recorded because a function was not found


def capture(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- PROGRAM [ARGS]...", help="program to run, with its arguments")
    ] = None,
    call: Annotated[
        list[str] | None,
        typer.Option(
            help="module:function, script.py:function, module:Class.method or torch.ops.namespace:name; repeatable"
        ),
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option(help="op of Kernwright, or torch op as namespace::name; repeatable", autocompletion=complete_ops),
    ] = None,
    out: Annotated[Path, typer.Option(help="file to write")] = Path("capture.jsonl"),
    recover: Annotated[
        Path | None, typer.Option(help="folder of an interrupted capture: collect its records and run nothing")
    ] = None,
) -> None:
    """Run a program and record the signatures of its calls: shapes, dtypes, strides, scalars, counts; never values.

    Without --call and --op, calls of all of Kernwright's ops are recorded. The program keeps its streams and signals.

    Exit status: that of the program; 1 if the program succeeded, nothing was recorded, and a named function was not
    found.
    """
    from kernwright.capture.folder import make_folder, merge, remove_folder
    from kernwright.capture.program import end_like, program_name, run
    from kernwright.core.errors import KernwrightError

    refuse_unwritable(out)
    if recover is not None:
        if command or call or op:
            raise KernwrightError("--recover takes no program", "leave the program, --call and --op out")
        for line in _finish(merge(recover), out):
            say(f"kernwright: {line}", err=True)
        return
    if not command:
        raise KernwrightError("no program was named", "write it after --: kernwright capture -- python x.py")
    targets = _targets(call or [], op or [])
    folder = make_folder(out, program_name(command), targets, _places(targets))
    try:
        ending = run(command, folder)
    except KernwrightError:
        remove_folder(folder)
        raise
    try:
        merged = merge(folder, ending)
        lines = _finish(merged, out)
    except KernwrightError as error:
        raise KernwrightError(error.cause, f"kernwright capture --recover {folder} --out FILE") from error
    remove_folder(folder)
    with suppress(BrokenPipeError):  # the reader of standard error may have ended, as in `2>&1 | head -1`
        for line in lines:
            say(f"kernwright: {line}", err=True)
    end_like(ending or (NOT_FOUND if _found_nothing(merged) else 0))


def _targets(calls: list[str], ops: list[str]) -> list[str]:
    from kernwright.capture.target import file_in, problem_with
    from kernwright.core.errors import KernwrightError

    targets = list(dict.fromkeys([*calls, *(_op_target(op) for op in ops)])) or _every_op()
    for target in targets:
        if problem := problem_with(target):
            raise KernwrightError(f"--call {target}: {problem}", "write it as in --call torch.nn.functional:layer_norm")
        if (file := file_in(target)) and not Path(file).is_file():
            raise KernwrightError(f"--call {target}: the file {file} does not exist", "write its path from this folder")
    return targets


def _op_target(op: str) -> str:
    from kernwright.capture.own_ops import target_of
    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.ops import FAMILIES

    namespace, colons, name = op.partition("::")
    if colons:
        return f"torch.ops.{namespace}:{name}"
    if op not in FAMILIES:
        known = f"use one of: {', '.join(sorted(FAMILIES))}; or a torch op as namespace::name"
        raise KernwrightError(f"--op {op}: no such op", did_you_mean(op, FAMILIES, known))
    return target_of(op)


def _every_op() -> list[str]:
    from kernwright.capture.own_ops import target_of
    from kernwright.ops import FAMILIES

    return [target_of(op) for op in sorted(FAMILIES)]


def _places(targets: list[str]) -> dict[str, tuple[str, ...]]:
    from kernwright.capture.own_ops import op_of, places_of

    return {target: places_of(op) for target in targets if (op := op_of(target))}


def _found_nothing(capture: Capture) -> bool:
    """Return whether no call was recorded and a function that the user named was not found."""
    header = capture.header
    named = [] if list(header.targets) == _every_op() else header.targets
    return not any(capture.counts.values()) and not set(named) <= set(header.wrapped)


def _finish(capture: Capture, out: Path) -> list[str]:
    """Write the capture. Return the lines to print."""
    from kernwright.capture.capture import write_capture

    write_capture(capture, out)
    header = capture.header
    lines = [f"{out}: {len(capture.calls)} signature(s) in {header.processes} process(es)"]
    if header.failure:
        held = "holds only the calls before that" if capture.calls else "is empty"
        lines.insert(0, f"the program itself {header.failure}; the capture {held}")
    every_op = list(header.targets) == _every_op()
    if every_op:
        lines.append(
            f"recorded: calls of all {len(header.targets)} of Kernwright's ops, as no --call and no --op was given"
        )
        if not any(capture.counts.values()):
            lines.append("none of them was called: name what to record with --call module:function or --op NAME")
    for target, count in capture.counts.items():
        if count:
            kept = len(capture.of(target))
            lines.append(f"{target}: {count} call(s), {kept} signature(s)" + _not_kept(header.not_kept.get(target, 0)))
        elif every_op:
            continue  # most programs call few of them
        elif target in header.wrapped:
            lines.append(f"{target}: was found, but never called from Python")
        elif not any(problem.startswith(f"{target}: ") for problem in header.problems):  # a problem names the reason
            lines.append(f"{target}: {NEVER_MET}")
    return [*lines, *header.problems]


def _not_kept(calls: int) -> str:
    return f"; {calls} call(s) of further signatures were only counted" if calls else ""
