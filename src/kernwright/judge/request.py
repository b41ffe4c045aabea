"""Request: what a user asks the judge for, and how it becomes a judgement."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from kernwright.campaign.ledger import Ledger
from kernwright.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.compiled import Compiled
from kernwright.judge.confine import hide_judge
from kernwright.judge.device import find_device
from kernwright.judge.judge import Judgement, Progress, refuse_rows_too_large
from kernwright.judge.lock import device_lock
from kernwright.judge.party import Party
from kernwright.judge.provenance import Provenance, command_line, library_versions, source_hashes
from kernwright.judge.provision import implemented, provision, target_of
from kernwright.judge.scratch import scratch_folder
from kernwright.judge.sides import Side, baseline_side, candidate_side, shipped_side
from kernwright.judge.timing import SideName
from kernwright.judge.verdict import Verdict
from kernwright.judge.vigil import vigil_over
from kernwright.judge.worker_process import DEVICE_DEADLINE_S, SPARE_PROCESSORS
from kernwright.tasks.baseline import Baseline, find_baseline
from kernwright.tasks.candidate import Candidate, load_candidate
from kernwright.tasks.catalog import find_task
from kernwright.tasks.shipped import find_contender
from kernwright.tasks.task import Task

NEEDS_CUDA = frozenset({"cuda", "cutedsl"})


@dataclass(frozen=True)
class JudgeRequest:
    """One call of `kernwright judge`."""

    task: str
    candidate: Path | None
    baseline: str = "eager"
    rows: str | None = None
    device: str = "cpu"
    seed: int | None = None
    quick: bool = False
    against_itself: bool = False
    contender: str | None = None  # a baseline by its name, or `kernwright`: the ops that ship
    ledger: Path | None = None
    wait_s: float = 0.0
    census: bool = True
    deadline_s: float = DEVICE_DEADLINE_S


def judge(request: JudgeRequest, progress: Progress) -> Verdict:
    """Everything that can be refused is refused before a worker starts; then the device is held to the end."""
    device = find_device(request.device)
    task = find_task(request.task)
    baseline = find_baseline(task, request.baseline)
    candidate = _candidate(request, task)
    contender = _contender(request, task, baseline)
    home, away = Party.of_baseline(baseline), contender or Party.of_candidate(_known(candidate))
    op = None if contender or candidate is None else candidate.file.op
    rows = task.select(request.rows, op, default="smoke" if device.name == "cpu" else "production")
    ready, chosen = None, rows
    if away.shipped:
        ready = provision(away.shipped.ops, target_of(device.name, device.capability))
        rows = implemented(rows, ready)
        away = Party.of_contender(away.shipped.only(row.op for row in rows))  # its digest is of what is judged
    refuse_rows_too_large(rows, device)
    policy = task.policy.quick() if request.quick else task.policy
    ops, away_ops = (party.ops(task, rows, device.capability) for party in (home, away))
    provenance = Provenance(
        command=command_line(),
        seed=secrets.randbits(63) if request.seed is None else request.seed,
        host=platform.node(),
        hardware=device.describe(),
        libraries=library_versions(),
        policy=policy.model_dump(),
        sources=source_hashes(task, away.shipped or (None if contender else candidate)),
        baseline=home.about(ops),
        contender=ready.about(dict.fromkeys(row.op for row in chosen)) if ready else away.about(away_ops),
        device=request.device,
    )
    with (
        device_lock(device.name, request.wait_s),
        scratch_folder() as scratch,
        machine_trouble(),
        apart_from(device.worker_processor() if device.has_kernels else None),
        vigil_over(device),
    ):
        device.begin(rows, scratch / "judge")
        device.deadline_s = request.deadline_s
        provenance.isolation = {"judge": hide_judge()}
        provenance.kept_awake = device.vigil.processor if device.vigil else None
        sides: dict[SideName, Side] = {
            "baseline": baseline_side(baseline, task, scratch / "baseline", request.device, ops),
            "again": baseline_side(baseline, task, scratch / "again", request.device, ops),
            "candidate": (
                shipped_side(ready, scratch / "candidate")
                if ready
                else baseline_side(away.baseline, task, scratch / "contender", request.device, away_ops)
                if away.baseline
                else candidate_side(_known(candidate), scratch / "candidate", request.device)
            ),
        }
        for name, side in sides.items():
            party = away if name == "candidate" else home
            side.compiled = Compiled.of(
                party, (row.op for row in rows), side.scratch, provenance.hardware, provenance.libraries
            )
        with Ledger(request.ledger).open_run(
            {
                "task": task.name,
                "baseline": baseline.model_dump(),
                # The seed comes with the verdict: until then no file may hold it, a worker might read files.
                "provenance": provenance.model_dump(mode="json", exclude={"seed", "command"}),
            }
        ) as writer:
            return Judgement(
                task=task,
                baseline=home,
                candidate=away,
                sides=sides,
                rows=rows,
                device=device,
                policy=policy,
                provenance=provenance,
                writer=writer,
                progress=progress,
                quick=request.quick,
                # What a published baseline launched is what shows that it is one.
                census=request.census and (not request.quick or bool(home.published or away.published)),
                seeded=request.seed is not None,
            ).run()


@contextlib.contextmanager
def apart_from(processor: int | None) -> Iterator[None]:
    """Keeps this thread off the workers' processor, where there are others enough: a worker that wakes up must not find
    the judge there."""
    usable = os.sched_getaffinity(0)
    moved = processor is not None and len(usable) > SPARE_PROCESSORS
    if moved:
        with contextlib.suppress(OSError):  # a sandbox may refuse it; then they share
            os.sched_setaffinity(0, usable - {processor})
    try:
        yield
    finally:
        if moved:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, usable)


@contextlib.contextmanager
def machine_trouble() -> Iterator[None]:
    """A full disk, a full GPU or a read-only folder ends the run with its cause; the ledger keeps what it has."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EnvironmentProblem(
            f"the device is out of memory: {str(error).splitlines()[0][:200]}", "choose smaller rows with --rows"
        ) from error
    except OSError as error:
        raise EnvironmentProblem(
            f"the machine refused: {error}", "free space or memory, or set TMPDIR; what was recorded is intact"
        ) from error


def _contender(request: JudgeRequest, task: Task, baseline: Baseline) -> Party | None:
    """A baseline in the candidate's place, another one or the same; or the ops that ship."""
    if request.against_itself and (request.contender is not None or request.candidate is not None):
        raise KernwrightError(
            "--aa judges the baseline against itself", "leave out --candidate and --contender, or --aa"
        )
    if request.against_itself:
        return Party.of_baseline(baseline)
    return Party.of_contender(find_contender(task, request.contender)) if request.contender is not None else None


def _known(candidate: Candidate | None) -> Candidate:
    if candidate is None:
        raise KernwrightError(
            "no candidate to judge", "name its folder with --candidate, a baseline with --contender, or use --aa"
        )
    return candidate


def _candidate(request: JudgeRequest, task: Task) -> Candidate | None:
    if request.candidate is None:
        return None
    if request.contender is not None:
        raise KernwrightError("there is a candidate and a contender", "name one of them")
    candidate = load_candidate(request.candidate)
    if candidate.file.op not in task.ops:
        raise KernwrightError(
            f"candidate {candidate.name} implements {candidate.file.op}, which task {task.name} has no rows of",
            f"the task's ops are: {', '.join(task.ops)}",
        )
    if request.device == "cpu" and candidate.file.language in NEEDS_CUDA:
        raise EnvironmentProblem(
            f"candidate {candidate.name} is written in {candidate.file.language}, which does not run on a CPU",
            "judge it with --device cuda on a machine with a GPU",
        )
    if candidate.file.language == "triton" and importlib.util.find_spec("triton") is None:
        raise EnvironmentProblem(f"candidate {candidate.name} needs Triton", "pip install 'kernwright[gpu]'")
    return candidate
