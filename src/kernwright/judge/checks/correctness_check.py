"""CorrectnessCheck: a contender's correctness on every row, before anything is timed."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.judge.checks.case_runner import CaseRunner
from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.device.device import Device
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.numerics.correctness import check_row
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.record.provenance import Provenance
from kernwright.judge.record.verdict import RanImplementation
from kernwright.judge.rounds.row_state import RowState
from kernwright.tasks.candidate import Style
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload


@dataclass(frozen=True)
class CorrectnessCheck:
    """The correctness check of one contender, at the sizes that the task asks for."""

    task: Task
    candidate: Contestant
    style: Style
    device: Device
    provenance: Provenance

    def examine(self, worker: WorkerProcess, state: RowState, pool: Pool) -> float:
        """Run every case of a row and record the problems in its state. Return the seconds of the first calls.

        Failures of the worker are raised.
        """
        runner = CaseRunner(self.device, worker, self.task.op_of(state.row), self.style)
        try:
            state.report = check_row(
                self.task,
                state.row,
                runner,
                pool,
                standard="tolerance" if self.candidate.trusted else None,
            )
        finally:
            runner.close()
        if self.candidate.shipped:
            state.ran = self._implementation(worker, state.row)
        if state.report.problems:
            state.fault = "incorrect"
            state.reasons += state.report.problems
        elif not state.report.deterministic:
            state.reasons.append("two calls on the same inputs differ in their bits (both within the contract)")
        return runner.first_calls_s

    def _implementation(self, worker: WorkerProcess, row: Workload) -> RanImplementation:
        """Return the implementation of a shipped op that runs the row, and record the libraries that are loaded."""
        session = self.device.open_session(worker, self.task.op_of(row), row, "returns", 1)
        try:
            ran = session.implementation()
        finally:
            session.close()
        mapped = worker.memory.mappings()
        known = self.provenance.contender.get("libraries", [])
        loaded = self.provenance.contender.setdefault("loaded", [])
        loaded += [name for name in known if name not in loaded and f"/{name}" in mapped]
        return ran
