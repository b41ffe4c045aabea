"""kernwright run: a program under the native gate, with its perf dump and its provenance."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.diagnose.program_run.watched_program import ProgramEnding

STOPPED = 1  # exit status if the native gate stopped the program


def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- PROGRAM [ARGS]...", help="program to run, with its arguments")
    ] = None,
    swap: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION=CANDIDATE",
            help="run ops.NAME, a candidate folder or FILE.py:FUNCTION instead of a function; repeatable",
        ),
    ] = None,
    turns: Annotated[
        int, typer.Option(help="with --swap: compare so many runs with as many without the swap, in turns")
    ] = 0,
    label: Annotated[
        str | None, typer.Option(help="with --swap: label of the perf dumps; default: the candidate's name")
    ] = None,
) -> None:
    """Run a program as a benchmark. Stop it if its output says that it does not use the native backend.

    With --swap, calls that the candidate does not cover go to the original, and a sample of the others is compared with
    it. The candidate runs in the program's own process, so that the result is no verdict.

    Exit status: that of the program; 1 if the native gate stopped it, or if a swap failed: its function was not found
    or never called, no call was covered, or results differ.
    """
    import os

    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.program_run.watched_program import run_watched

    if not command:
        raise KernwrightError("no program was named", "write it after --: kernwright run -- sglang generate ...")
    if swap:
        from kernwright.cli.models.swap import run_swapped

        run_swapped(command, swap, turns, label)
    if turns or label:
        raise KernwrightError("--turns and --label need --swap", "name a function and its candidate with --swap")
    end_like_program(run_watched(command, os.environ))


def end_like_program(ending: ProgramEnding) -> None:
    from kernwright.capture.program import end_like

    if ending.sign:
        _tell(f"stopped: the native backend was not used: {ending.sign}")
        end_like(STOPPED)
    end_like(-ending.interrupted if ending.interrupted else ending.status)


def _tell(line: str) -> None:
    with suppress(BrokenPipeError):  # the reader of standard error may have ended
        say(f"kernwright: {line}", err=True)
