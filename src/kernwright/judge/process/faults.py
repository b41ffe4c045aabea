"""What a worker can do wrong: fall over, or break a rule."""

from __future__ import annotations


class WorkerFailed(Exception):
    """The worker crashed, hung, or said that the side does not work. `kind` is its word for what went wrong."""

    def __init__(self, message: str, kind: str = "") -> None:
        self.kind = kind
        super().__init__(message)


class WorkerCheated(Exception):
    """The worker did what no honest side does."""


class StrayProcess(WorkerCheated):
    """A process without a parent runs beside the workers: only a candidate brings code that could have left it."""
