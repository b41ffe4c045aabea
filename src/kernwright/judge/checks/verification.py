"""Verification: the check that a baseline computes the same as the op's reference, row by row, in a worker.

It uses the frozen sizes only: a baseline is timed on those, and a package may decline others. The shipped ops are
verified too: at all sizes, under the full contract.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from kernwright.baselines.lookup import find_contender
from kernwright.baselines.shipped import Shipped
from kernwright.judge.checks.case_runner import CaseRunner
from kernwright.judge.contest.compiled_files import CompiledFiles
from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.contest.shipped_build import ShippedBuild, find_shipped_build, target_of
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.contest.worker_spec import WorkerSpec, baseline_spec, shipped_spec
from kernwright.judge.device.device import Device
from kernwright.judge.device.lock import device_lock
from kernwright.judge.device.problems import explained_machine_errors, refuse_rows_too_large
from kernwright.judge.device.selection import find_device
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.numerics.correctness import check_row
from kernwright.judge.numerics.secret_rng import CONTENT_SEED_BITS
from kernwright.judge.process.faults import WorkerFailed, WorkerFault
from kernwright.judge.process.scratch import scratch_folder
from kernwright.judge.record.provenance import library_versions
from kernwright.judge.rounds.progress import Progress
from kernwright.tasks.baseline import Baseline
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

FindingKind = Literal["agrees", "declines", "rounds", "differs", "failed"]


@dataclass(frozen=True)
class RowFinding:
    """The finding on one row of one baseline. `kernels` are those of a call, on devices with a kernel census."""

    baseline: str
    task: str
    row: str
    op: str
    finding: FindingKind
    reason: str = ""
    kernels: tuple[str, ...] = ()


@dataclass
class Verification:
    """One baseline, or the shipped ops, on some rows of one task."""

    baseline: Baseline | Shipped
    task: Task
    rows: Sequence[Workload]
    device: Device
    threads: int

    def __post_init__(self) -> None:
        self.contestant = Contestant.of_contender(self.baseline)
        self.checked = self.task if self.contestant.shipped else self.task.at_frozen_sizes()

    def run(self, progress: Progress, wait_s: float = 0.0) -> Iterator[RowFinding]:
        accepted = []
        for row in self.rows:
            if why := self._declines(row):
                yield self._finding(row, "declines", why)
            else:
                accepted.append(row)
        if not accepted:
            return
        progress.phase(f"{self.baseline.name} on {self.task.name}", len(accepted))
        ops = self.contestant.ops(self.task, accepted, self.device.capability)
        with (
            device_lock(self.device.name, wait_s, shared=True),
            scratch_folder() as scratch,
            explained_machine_errors(),
        ):
            self.device.make_room_for(1)  # in the memory that concurrent verifications leave
            refuse_rows_too_large(accepted, self.device)
            self.device.begin(tuple(accepted), scratch / "judge", one_by_one=True)
            side = self._spec(scratch / "baseline", ops)
            side.compiled = CompiledFiles.of(
                self.contestant, self.task.name, side.scratch, self.device.describe(), library_versions()
            )
            group = WorkerGroup({"baseline": side}, self.threads, self.device, pinned=False)
            try:
                for row in accepted:
                    yield self._verified(group, row)
                    progress.step(row.id)
            finally:
                group.dismiss()
            group.keep_compiled(twins=())  # a later sweep uses these files

    @cached_property
    def _build(self) -> ShippedBuild | None:
        """Return the build of the shipped ops."""
        shipped, device = self.contestant.shipped, self.device
        return find_shipped_build(shipped.ops, target_of(device.name, device.capability)) if shipped else None

    def _declines(self, row: Workload) -> str | None:
        if self._build is not None:
            return self._build.skips(row.op)
        return self.contestant.declines(self.task, row, self.device.capability)

    def _spec(self, folder: Path, ops: Sequence[str]) -> WorkerSpec:
        if self._build is not None:
            return shipped_spec(self._build, folder)
        assert isinstance(self.baseline, Baseline)
        return baseline_spec(self.baseline, self.task, folder, self.device.name, ops)

    def _verified(self, group: WorkerGroup, row: Workload) -> RowFinding:
        try:
            problem = self._problem(group, row)
            kernels = self._kernels(group, row)
        except WorkerFault as cause:
            group.respawn("baseline")
            wrong = isinstance(cause, WorkerFailed) and cause.kind == "OutputProblem"
            return self._finding(row, "differs" if wrong else "failed", str(cause))
        names = tuple(kernels or ())
        if kernels is not None and (why := self.contestant.ran_else(row.op, kernels)):
            return self._finding(row, "failed", why, names)
        if problem is not None:
            return self._finding(row, problem[0], self._with_rounding(row, problem[1]), names)
        return self._finding(row, "agrees", kernels=names)

    def _problem(self, group: WorkerGroup, row: Workload) -> tuple[FindingKind, str] | None:
        """Return the problem of a row: it differs beyond the tolerance, or only rounds differently."""
        op = self.task.op_of(row)
        runner = CaseRunner(self.device, group.worker("baseline", op.name), op, "returns")
        try:
            problems = check_row(self.checked, row, runner, self._pool(row)).problems
            if not problems:
                return None
            if not self.contestant.trusted:
                return "differs", problems[0]
            beyond = check_row(self.checked, row, runner, self._pool(row), standard="tolerance").problems
            return ("differs", beyond[0]) if beyond else ("rounds", problems[0])
        finally:
            runner.close()

    def _kernels(self, group: WorkerGroup, row: Workload) -> list[str] | None:
        if not self.device.has_kernels or self.contestant.shipped:  # the judge counts the kernels of shipped ops
            return None
        op = self.task.op_of(row)
        session = self.device.open_session(group.worker("baseline", op.name), op, row, "returns", slots=1)
        try:
            session.fill(0, self._pool(row).draw(op, row))
            return [kernel.name for kernel in session.census()]
        finally:
            session.close()

    def _pool(self, row: Workload) -> Pool:
        return self.device.pool(row, secrets.randbits(CONTENT_SEED_BITS))

    def _with_rounding(self, row: Workload, problem: str) -> str:
        adapter = self.contestant.published.adapter(row.op) if self.contestant.published else None
        return f"{problem} (known: {adapter.rounding})" if adapter and adapter.rounding else problem

    def _finding(
        self, row: Workload, finding: FindingKind, reason: str = "", kernels: tuple[str, ...] = ()
    ) -> RowFinding:
        return RowFinding(
            baseline=self.baseline.name,
            task=self.task.name,
            row=row.id,
            op=row.op,
            finding=finding,
            reason=reason,
            kernels=kernels,
        )


def verify(
    name: str, task: Task, rows: str | None, device_name: str, progress: Progress, wait_s: float = 0.0
) -> Iterator[RowFinding]:
    device = find_device(device_name)
    chosen = task.select(rows, default="smoke" if device.name == "cpu" else "production")
    return Verification(find_contender(task, name), task, chosen, device, task.policy.threads).run(progress, wait_s)
