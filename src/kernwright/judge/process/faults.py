"""Faults of a worker or of the code that it runs."""

from __future__ import annotations


class WorkerFault(Exception):
    """Base of everything that a worker or the code in it can do wrong."""


class WorkerFailed(WorkerFault):
    """The worker crashed, hung, or reported an error of its side. `kind` is the type of that error."""

    def __init__(self, message: str, kind: str = "") -> None:
        self.kind = kind
        super().__init__(message)


class WorkerCheated(WorkerFault):
    """The worker did something that no honest side does."""


class StrayProcess(WorkerCheated):
    """A process without a parent runs next to the workers. Only a candidate's code can have started it."""
