"""How a user's request becomes a judgement."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernwright.baselines.lookup import find_baseline, find_contender
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.contest.lineup import Lineup, Match
from kernwright.judge.device.device import Device
from kernwright.judge.device.keepalive import keep_processor_awake
from kernwright.judge.device.lock import device_lock
from kernwright.judge.device.problems import explained_machine_errors, refuse_rows_too_large
from kernwright.judge.device.selection import find_device
from kernwright.judge.judge import Judgement
from kernwright.judge.judge_request import JudgeRequest as JudgeRequest
from kernwright.judge.process.scratch import scratch_folder
from kernwright.judge.record.provenance import Provenance
from kernwright.judge.record.verdict import INTERPRETED, Verdict
from kernwright.judge.rounds.pair_state import PairState
from kernwright.judge.rounds.progress import NoProgress, Progress
from kernwright.judge.system.concealment import hide_judge
from kernwright.judge.system.processors import apart_from
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.baseline import Baseline
from kernwright.tasks.candidate import Candidate, load_candidate
from kernwright.tasks.catalog import find_task
from kernwright.tasks.policy import METRICS, TimingPolicy
from kernwright.tasks.task import Task

NEEDS_CUDA = frozenset({"cuda", "cutedsl"})


def judge(request: JudgeRequest, progress: Progress | None = None) -> Verdict:
    """Judge one pair and return its verdict.

    Args:
        request: the options of `kernwright judge`.
        progress: receives how far the judgement has come; by default nothing is shown.

    Raises:
        KernwrightError: the request is wrong, or cannot be carried out on this machine.
    """
    (verdict,) = judge_together([request], progress)
    assert verdict is not None  # the problem of a single pair is raised
    return verdict


def judge_together(requests: Sequence[JudgeRequest], progress: Progress | None = None) -> list[Verdict | None]:
    """Judge several pairs of one task together. The requests may differ only in baseline and contender.

    Returns a verdict per request, or None for one that could not be judged. If none could be judged, the reason
    is raised. Invalid requests are refused before a worker starts. The device stays locked until the end.
    """
    request = requests[0]
    if any(_but_for_the_pair(other) != _but_for_the_pair(request) for other in requests):
        raise KernwrightError("these requests cannot share a judgement", "vary only baseline and contender")
    device = find_device(request.device)
    task = find_task(request.task)
    candidate = _candidate(request, task)
    matches = [_match(own, task, candidate) for own in requests]
    op = candidate.file.op if candidate else None
    chosen = task.select(request.rows, op, default="smoke" if device.name == "cpu" else "production")
    lineup = Lineup(task=task, matches=matches, candidate=candidate, chosen=chosen, device=device)
    policy = policy_of(request, task)
    rounds = rounds_given(request.rounds, policy)
    seed = secrets.randbits(63) if request.seed is None else request.seed
    provenances = lineup.provenances(seed, policy, request)
    with (
        device_lock(device.name, request.wait_s),
        scratch_folder() as scratch,
        explained_machine_errors(),
        apart_from(device.worker_processor() if device.has_kernels else None),
        keep_processor_awake(device),
        contextlib.ExitStack() as runs,
    ):
        device.make_room_for(len(lineup.contestants))  # the lock is held, so no other judge uses the device
        refuse_rows_too_large(lineup.rows, device)
        device.begin(lineup.rows, scratch / "judge")
        device.deadline_s = request.deadline_s
        hidden = hide_judge()
        for provenance in provenances:
            provenance.isolation = {"judge": hidden}
            provenance.rounds = rounds
            provenance.block_loop = "native" if device.block_loop else "python"
            provenance.kept_awake = device.keepalive.processor if device.keepalive else None
        specs = lineup.specs(scratch, request.device, provenances[0])
        for pair in lineup.pairs:
            specs[pair.candidate].output = request.output
        ledger = Ledger(request.ledger)
        pairs = [
            PairState(
                pair=pair,
                task=task,
                baseline=match[0],
                candidate=match[1],
                rows=lineup.rows,
                device=device,
                policy=policy,
                provenance=provenance,
                writer=runs.enter_context(ledger.open_run(_opening(task, match, provenance))),
                quick=request.quick,
                seeded=request.seed is not None,
                untimed=_why_untimed(candidate, device),
            )
            for pair, match, provenance in zip(lineup.pairs, lineup.matches, provenances, strict=True)
        ]
        # The kernels that a published baseline launched prove that it ran.
        census = not request.quick or any(contestant.published for contestant in lineup.contestants.values())
        return Judgement(
            task=task,
            pairs=pairs,
            specs=specs,
            contestants=lineup.contestants,
            rows=lineup.rows,
            device=device,
            policy=policy,
            seed=seed,
            progress=progress or NoProgress(),
            census=census if request.census is None else request.census,
            rounds=rounds,
        ).run()


def policy_of(request: JudgeRequest, task: Task) -> TimingPolicy:
    """Return the timing policy of a judgement: the task's, with the requested deciding metric, or its quick version."""
    policy = task.policy.quick() if request.quick else task.policy
    if request.metric is None:
        return policy
    if request.metric not in METRICS:
        raise KernwrightError(
            f"--metric must be {', '.join(METRICS[:-1])} or {METRICS[-1]}, got {request.metric!r}",
            f"leave it out to use the task's, which is {policy.decides}",
        )
    return policy.model_copy(update={"decides": request.metric})


def rounds_given(asked: int | None, policy: TimingPolicy) -> int | None:
    """Return the requested rounds if they are fewer than the policy's, else None."""
    if asked is None or asked >= policy.max_rounds:
        return None
    if asked < policy.first_look:
        raise KernwrightError(
            f"--rounds must be at least {policy.first_look}, the policy's first look, got {asked}",
            f"use --rounds {policy.first_look} or more, or `kernwright judge --quick` for a rough time",
        )
    return asked


def _but_for_the_pair(request: JudgeRequest) -> JudgeRequest:
    return replace(request, baseline="", contender=None, against_itself=False)


def _match(request: JudgeRequest, task: Task, candidate: Candidate | None) -> Match:
    baseline = find_baseline(task, request.baseline)
    contender = _contender(request, task, baseline)
    return Contestant.of_baseline(baseline), contender or Contestant.of_candidate(_known(candidate))


def _opening(task: Task, match: Match, provenance: Provenance) -> dict[str, Any]:
    """Return the first record of a pair's run."""
    baseline = match[0].baseline
    return {
        "task": task.name,
        "baseline": baseline.model_dump() if baseline else None,
        # The seed is recorded with the verdict. Until then no file may hold it, since a worker might read files.
        "provenance": provenance.model_dump(mode="json", exclude={"seed", "command"}),
    }


def _contender(request: JudgeRequest, task: Task, baseline: Baseline) -> Contestant | None:
    """Return the baseline or the shipped ops in the candidate's place; None if there is a candidate."""
    if request.against_itself and (request.contender is not None or request.candidate is not None):
        raise KernwrightError(
            "--aa judges the baseline against itself", "leave out --candidate and --contender, or --aa"
        )
    if request.against_itself:
        return Contestant.of_baseline(baseline)
    return Contestant.of_contender(find_contender(task, request.contender)) if request.contender is not None else None


def _why_untimed(candidate: Candidate | None, device: Device) -> str | None:
    """Return why a candidate is checked for correctness only; None if it is timed."""
    is_interpreted = candidate is not None and candidate.file.language == "triton" and device.name == "cpu"
    return INTERPRETED if is_interpreted else None


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
        raise KernwrightError("both --candidate and --contender were given", "give one of them")
    candidate = load_candidate(request.candidate)
    if candidate.file.op not in task.ops:
        raise KernwrightError(
            f"candidate {candidate.name} implements {candidate.file.op}, for which task {task.name} has no rows",
            f"the task's ops are: {', '.join(task.ops)}",
        )
    if request.device == "cpu" and candidate.file.language in NEEDS_CUDA:
        raise EnvironmentProblem(
            f"candidate {candidate.name} is written in {candidate.file.language}, which does not run on a CPU",
            "judge it with --device cuda on a machine with a GPU",
        )
    if candidate.file.language == "triton" and importlib.util.find_spec("triton") is None:
        raise EnvironmentProblem(f"candidate {candidate.name} needs Triton", "pip install triton")
    return candidate
