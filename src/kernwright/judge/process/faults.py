"""Faults of a worker or of the code that it runs."""

from __future__ import annotations

from collections.abc import Sequence

AT = "  at "  # begins the line of a frame in the text of a fault


class WorkerFault(Exception):
    """Base of everything that a worker or the code in it can do wrong."""


class WorkerFailed(WorkerFault):
    """The worker crashed, hung, or reported an error of its side.

    Args:
        kind: type of the side's error.
        frames: places in the side's own files that the error passed through, the innermost one last.
    """

    def __init__(self, message: str, kind: str = "", frames: Sequence[str] = ()) -> None:
        self.kind = kind
        super().__init__("\n".join([message, *(f"{AT}{frame}" for frame in frames)]))


class WorkerCheated(WorkerFault):
    """The worker did something that no honest side does."""


class StrayProcess(WorkerCheated):
    """A process without a parent runs next to the workers. Only a candidate's code can have started it."""
