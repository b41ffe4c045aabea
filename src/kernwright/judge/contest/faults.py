"""Faults of one side of a judgement."""

from __future__ import annotations

from kernwright.judge.contest.pair import SideName
from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.session.session import WrongBehaviour


class SideFault(Exception):
    """A side failed or broke a rule while it was timed."""

    def __init__(self, side: SideName, cause: WorkerFailed | WorkerCheated | WrongBehaviour | WrongOutput) -> None:
        self.side, self.cause = side, cause
        super().__init__(str(cause))


class WrongOutput(Exception):
    """A timed block left an output that is wrong."""
