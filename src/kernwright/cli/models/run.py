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
) -> None:
    """Run a program as a benchmark. Stop it if its output says that it does not use the native backend.

    Exit status: that of the program; 1 if the native gate stopped it.
    """
    import os

    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.program_run.watched_program import run_watched

    if not command:
        raise KernwrightError("no program was named", "write it after --: kernwright run -- sglang generate ...")
    _end(run_watched(command, os.environ))


def _end(ending: ProgramEnding) -> None:
    from kernwright.capture.program import end_like

    if ending.sign:
        _tell(f"stopped: the native backend was not used: {ending.sign}")
        end_like(STOPPED)
    end_like(-ending.interrupted if ending.interrupted else ending.status)


def _tell(line: str) -> None:
    with suppress(BrokenPipeError):  # the reader of standard error may have ended
        say(f"kernwright: {line}", err=True)
