"""Request: what a user asks the judge for, and how it becomes a judgement."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.cast import Cast, Match
from kernwright.judge.confine import hide_judge
from kernwright.judge.device import find_device
from kernwright.judge.judge import Judgement, Progress, refuse_rows_too_large
from kernwright.judge.lock import device_lock
from kernwright.judge.pair_state import PairState
from kernwright.judge.party import Party
from kernwright.judge.processors import apart_from
from kernwright.judge.provenance import Provenance
from kernwright.judge.scratch import scratch_folder
from kernwright.judge.verdict import Verdict
from kernwright.judge.vigil import vigil_over
from kernwright.judge.worker_process import DEVICE_DEADLINE_S
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.baseline import Baseline, find_baseline
from kernwright.tasks.candidate import Candidate, load_candidate
from kernwright.tasks.catalog import find_task
from kernwright.tasks.policy import TimingPolicy
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
    rounds: int | None = None  # at most; by default as many as the task's policy allows


def judge(request: JudgeRequest, progress: Progress) -> Verdict:
    """One pair by itself."""
    (verdict,) = judge_together([request], progress)
    assert verdict is not None  # that of the only one would have been raised
    return verdict


def judge_together(requests: Sequence[JudgeRequest], progress: Progress) -> list[Verdict | None]:
    """Several pairs of one task in one judgement: requests that differ in baseline and contender alone. None for one
    that could not be judged; where none could, the reason is raised.

    Everything that can be refused is refused before a worker starts. The device is held to the end.
    """
    request = requests[0]
    if any(_but_for_the_pair(other) != _but_for_the_pair(request) for other in requests):
        raise KernwrightError("these are no requests for one judgement", "let baseline and contender alone differ")
    device = find_device(request.device)
    task = find_task(request.task)
    candidate = _candidate(request, task)
    matches = [_match(own, task, candidate) for own in requests]
    op = candidate.file.op if candidate else None
    chosen = task.select(request.rows, op, default="smoke" if device.name == "cpu" else "production")
    cast = Cast(task, matches, candidate, chosen, device)
    policy = task.policy.quick() if request.quick else task.policy
    rounds = rounds_given(request.rounds, policy)
    seed = secrets.randbits(63) if request.seed is None else request.seed
    provenances = cast.provenances(seed, policy, request.device)
    with (
        device_lock(device.name, request.wait_s),
        scratch_folder() as scratch,
        machine_trouble(),
        apart_from(device.worker_processor() if device.has_kernels else None),
        vigil_over(device),
        contextlib.ExitStack() as runs,
    ):
        device.make_room_for(len(cast.parties))  # now that nobody else is judging there
        refuse_rows_too_large(cast.rows, device)
        device.begin(cast.rows, scratch / "judge")
        device.deadline_s = request.deadline_s
        hidden = hide_judge()
        for provenance in provenances:
            provenance.isolation = {"judge": hidden}
            provenance.rounds = rounds
            provenance.block_loop = "native" if device.block_loop else "python"
            provenance.kept_awake = device.vigil.processor if device.vigil else None
        sides = cast.sides(scratch, request.device, provenances[0])
        ledger = Ledger(request.ledger)
        pairs = [
            PairState(
                pair, task, *match, cast.rows, device, policy, provenance,
                writer=runs.enter_context(ledger.open_run(_opening(task, match, provenance))),
                quick=request.quick, seeded=request.seed is not None,
            )
            for pair, match, provenance in zip(cast.pairs, cast.matches, provenances, strict=True)
        ]  # fmt: skip
        # What a published baseline launched is what shows that it is one.
        census = request.census and (not request.quick or any(party.published for party in cast.parties.values()))
        return Judgement(
            task, pairs, sides, cast.parties, cast.rows, device, policy, seed, progress, request.quick, census, rounds
        ).run()


def rounds_given(asked: int | None, policy: TimingPolicy) -> int | None:
    """Fewer than the policy has, or None. A row may not be decided before the policy's first look at it."""
    if asked is None or asked >= policy.max_rounds:
        return None
    if asked < policy.first_look:
        raise KernwrightError(
            f"rows are first looked at after {policy.first_look} rounds, and there would be {asked}",
            f"give it --rounds {policy.first_look} or more; a coarse time is what `kernwright judge --quick` is for",
        )
    return asked


def _but_for_the_pair(request: JudgeRequest) -> JudgeRequest:
    return replace(request, baseline="", contender=None, against_itself=False)


def _match(request: JudgeRequest, task: Task, candidate: Candidate | None) -> Match:
    baseline = find_baseline(task, request.baseline)
    contender = _contender(request, task, baseline)
    return Party.of_baseline(baseline), contender or Party.of_candidate(_known(candidate))


def _opening(task: Task, match: Match, provenance: Provenance) -> dict[str, Any]:
    """The first record of a pair's run."""
    baseline = match[0].baseline
    return {
        "task": task.name,
        "baseline": baseline.model_dump() if baseline else None,
        # The seed comes with the verdict: until then no file may hold it, a worker might read files.
        "provenance": provenance.model_dump(mode="json", exclude={"seed", "command"}),
    }


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
