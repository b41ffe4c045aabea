"""The end of a command that ran a program: its last messages and its exit status."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.diagnose.program_run.watched_program import ProgramEnding

STOPPED = 1  # exit status if the native gate stopped the program


def end_like_program(ending: ProgramEnding) -> None:
    """End this process as the program ended, or with status 1 if the native gate stopped it."""
    from kernwright.capture.program import end_like
    from kernwright.diagnose.program_run.native_gate import REMEDY

    if ending.sign:
        tell(f"stopped: the output says that the native backend is not used: {ending.sign}\n  remedy: {REMEDY}")
        end_like(STOPPED)
    end_like(-ending.interrupted if ending.interrupted else ending.status)


def tell(line: str) -> None:
    """Print a message of ours among those of the program."""
    with suppress(BrokenPipeError):  # the reader of standard error may have ended
        say(f"kernwright: {line}", err=True)
