"""Faults of one side of a judgement."""

from __future__ import annotations

from types import TracebackType

from kernwright.judge.process.faults import WorkerFault
from kernwright.judge.record.sample import SideName


class WrongOutput(WorkerFault):
    """An output of a timed block is wrong."""


class SideFault(Exception):
    """A side failed or broke a rule while it was timed."""

    def __init__(self, side: SideName, cause: WorkerFault) -> None:
        self.side, self.cause = side, cause
        super().__init__(str(cause))


class AttributedTo:
    """Context manager that turns a worker's fault into the fault of the given side."""

    def __init__(self, side: SideName) -> None:
        self.side = side

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, WorkerFault):
            raise SideFault(self.side, error) from error
