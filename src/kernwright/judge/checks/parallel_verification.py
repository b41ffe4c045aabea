"""VerificationPool: several verifications at once, one process each. They are not timed, so they may share a device.

Most of the time goes to a package's compilers, which use one processor each.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.judge.checks.verification import RowFinding
from kernwright.judge.rounds.progress import Progress
from kernwright.tasks.task import Task

MOST_ROWS = 16  # rows per job, so that no process works long after the others
MOST_GRID_ROWS = 250  # rows per job of a grid: a row takes milliseconds, the start of a process seconds
MOST_SHARED = 200  # rows of a task that are divided into small jobs
GRACE_S = 10.0  # time for a verifier to end after an interrupt
MOST_SAID = 600  # characters kept of a verifier's last output


class Unverified(KernwrightError):
    """A verifier ended without findings. The message holds its last output."""


@dataclass(frozen=True)
class VerificationJob:
    """One baseline on some rows of one task."""

    baseline: str
    task: Task
    rows: str
    label: str

    @classmethod
    def shared_out(cls, baseline: str, task: Task, rows: str | None, device: str) -> list[VerificationJob]:
        """Divide the requested rows into jobs of similar size."""
        chosen = rows or ("smoke" if device == "cpu" else "production")
        ids = [row.id for row in task.select(chosen)]
        label = f"{baseline} on {task.name}"
        if len(ids) <= MOST_ROWS:
            return [cls(baseline, task, chosen, label)]
        parts = -(-len(ids) // (MOST_ROWS if len(ids) <= MOST_SHARED else MOST_GRID_ROWS))
        return [cls(baseline, task, ",".join(ids[n::parts]), f"{label}, part {n + 1} of {parts}") for n in range(parts)]


@dataclass
class VerificationPool:
    """Runs verifications in up to `processes` processes on one device."""

    device: str
    processes: int
    wait_s: float = 0.0
    _running: set[subprocess.Popen[str]] = field(default_factory=set)

    def run(self, jobs: Sequence[VerificationJob], progress: Progress) -> Iterator[RowFinding]:
        """Yield the findings of all jobs. Failed jobs are repeated one by one afterwards, when there is more memory.

        A job that fails again is raised at the end.
        """
        progress.phase(f"verifying, {self.processes} at once", len(jobs))
        again: list[VerificationJob] = []
        with ThreadPoolExecutor(self.processes) as pool:
            promised = {pool.submit(self._verify, job): job for job in jobs}
            try:
                for done in as_completed(promised):
                    try:
                        yield from done.result()
                        progress.step(promised[done].label)
                    except Unverified:
                        again.append(promised[done])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._end()
                raise
        troubles: list[Unverified] = []
        for job in again:
            try:
                yield from self._verify(job)
            except Unverified as trouble:
                troubles.append(trouble)
            progress.step(job.label)
        if troubles:
            raise Unverified("\n".join(trouble.cause for trouble in troubles), troubles[0].remedy)

    def _verify(self, job: VerificationJob) -> list[RowFinding]:
        with tempfile.TemporaryDirectory(prefix="kernwright-verified-") as folder:
            findings = Path(folder, "findings.json")
            process = subprocess.Popen(
                self._command(job, findings), env=self._environment(), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
            try:
                _, said = process.communicate()
            except BaseException:
                _signal(process, signal.SIGINT)
                _see_off(process)
                raise
            finally:
                self._running.discard(process)
            found = _read(findings)
            if {finding.row for finding in found} != {row.id for row in job.task.select(job.rows)}:
                cause = said.strip()[-MOST_SAID:] or f"ended with status {process.returncode}"
                raise Unverified(f"{job.label}: {cause}", "leave this baseline out, or fix the cause")
            return found

    def _command(self, job: VerificationJob, findings: Path) -> list[str]:
        command = [sys.executable, "-m", "kernwright", "baseline", "verify", job.baseline]
        command += ["--task", str(job.task.folder), "--device", self.device, "--json", str(findings)]
        return [*command, "--wait", str(self.wait_s), "--rows", job.rows]

    def _environment(self) -> dict[str, str]:
        """Return an environment that gives each process its share of the processors."""
        share = str(max(1, len(os.sched_getaffinity(0)) // self.processes))
        return os.environ | {"OMP_NUM_THREADS": share, "MKL_NUM_THREADS": share}

    def _end(self) -> None:
        """Interrupt all running verifiers, then wait for them."""
        processes = list(self._running)
        for process in processes:
            _signal(process, signal.SIGINT)
        for process in processes:
            _see_off(process)


def _see_off(process: subprocess.Popen[str]) -> None:
    """Wait for a verifier. Kill it if it ignores the interrupt, which background jobs of a shell do."""
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _read(findings: Path) -> list[RowFinding]:
    """Return the findings that were written; a verifier that was ended early has written fewer or none."""
    try:
        found: list[dict[str, Any]] = json.loads(findings.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [RowFinding(**(own | {"kernels": tuple(own["kernels"])})) for own in found]
