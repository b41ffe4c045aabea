"""Next step: the commands that are useful after a verdict."""

from __future__ import annotations

import shlex
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from kernwright.advice.fault import FAULTS, faults_of
from kernwright.judge.judge_request import JudgeRequest
from kernwright.judge.record.verdict import INTERPRETED, UNTIMED, Verdict

MOST_ROWS = 6  # more rows are not written out in a command


class NextStep(BaseModel):
    """A command and its purpose."""

    model_config = ConfigDict(frozen=True)

    purpose: str
    command: str = Field(description="one line for a shell")


def step(purpose: str, command: str) -> NextStep:
    return NextStep(purpose=purpose, command=command)


def next_steps(verdict: Verdict, request: JudgeRequest) -> list[NextStep]:
    """Return the most useful commands after this verdict, the most useful one first."""
    if verdict.interrupted:
        return [step("judge all rows", judge_command(request))]
    if verdict.verdict in FAULTS:
        return _after_fault(verdict, request)
    if (timed := _untimed_step(verdict, request)) is not None:
        return [timed]
    if verdict.quick:
        return [step("full run, which is evidence", judge_command(replace(request, quick=False)))]
    if verdict.verdict == "inconclusive":
        return _after_doubt(verdict, request)
    steps = [step("page with plots of every row", report_command(verdict, request))]
    if request.seed is not None:
        again = judge_command(replace(request, seed=None))
        return [step("run with secret inputs, which is evidence", again), *steps]
    if verdict.verdict != "slower" and request.baseline == "eager" and not request.against_itself:
        other = judge_command(replace(request, baseline="compile"))
        steps.append(step("a stronger baseline", other))
    return steps


def _after_fault(verdict: Verdict, request: JudgeRequest) -> list[NextStep]:
    faults = faults_of(verdict)
    quick = replace(request, quick=True, rounds=None, seed=None)
    changed = step("after a change", judge_command(quick, show_output=True))
    is_alone = len(faults) == 1 and len(faults[0].rows) == len(verdict.rows)
    if verdict.verdict == "incorrect":
        wrong = next(fault for fault in faults if fault.outcome == "incorrect")
        command = repeat_command(verdict, request, wrong.rows[0])
        return [step("the failing case again, with the same inputs", command), changed]
    if is_alone:
        return [changed]
    alone = judge_command(replace(quick, rows=faults[0].rows[0]), show_output=True)
    return [step("the first of these rows alone, with the candidate's output", alone)]


def repeat_command(verdict: Verdict, request: JudgeRequest, row: str) -> str:
    """Return the command that judges one row again with the same inputs. The correctness cases depend only on the row
    and the seed."""
    seed = verdict.provenance.get("seed")
    same = replace(request, rows=row, seed=seed if isinstance(seed, int) else None, quick=True, rounds=None)
    return judge_command(same, show_output=True)


def _untimed_step(verdict: Verdict, request: JudgeRequest) -> NextStep | None:
    """Return the command that times rows which were only checked for correctness; None if a row was timed."""
    reasons = [set(row.reasons) for row in verdict.rows]
    if not reasons:
        return None
    if all(INTERPRETED in own for own in reasons):
        return step("times, on a machine with a GPU", judge_command(replace(request, device="cuda", quick=False)))
    if all(UNTIMED in own for own in reasons):
        return step("rows that are timed", judge_command(replace(request, rows=None)))
    return None


def _after_doubt(verdict: Verdict, request: JudgeRequest) -> list[NextStep]:
    steps = []
    if request.rounds is not None:
        steps.append(step("more rounds", judge_command(replace(request, rounds=None))))
    else:
        rows = [row.id for row in verdict.rows if row.verdict == "inconclusive" and row.metrics]
        wanted = ",".join(rows) if 0 < len(rows) <= MOST_ROWS else request.rows
        steps.append(step("undecided rows again, on an idle machine", judge_command(replace(request, rows=wanted))))
    return [*steps, step("page with plots of every row", report_command(verdict, request))]


def judge_command(request: JudgeRequest, show_output: bool = False) -> str:
    """Return the command line of a request."""
    default = JudgeRequest(task="", candidate=None)
    words = ["kernwright", "judge", request.task]
    for option in ("candidate", "contender", "baseline", "rows", "device", "seed", "rounds", "metric", "ledger"):
        value = getattr(request, option)
        if value != getattr(default, option):
            words += [f"--{option}", str(value)]
    for option in ("wait", "deadline"):
        seconds = getattr(request, f"{option}_s")
        if seconds != getattr(default, f"{option}_s"):
            words += [f"--{option}", f"{seconds:g}"]
    words += ["--aa"] * request.against_itself + ["--quick"] * request.quick + ["--show-output"] * show_output
    return shlex.join(words)


def report_command(verdict: Verdict, request: JudgeRequest) -> str:
    """Return the command line that makes a page of the verdict."""
    ledger = ["--ledger", str(request.ledger)] if request.ledger else []
    return shlex.join(["kernwright", "report", verdict.run, *ledger])
