"""Advice: what a program should do after a verdict. It is the section `next` of the JSON of `kernwright judge`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from kernwright.advice.failing_case import LABEL, FailingCase, failing_case
from kernwright.advice.fault import FAULTS
from kernwright.advice.next_step import NextStep, next_steps, repeat_command
from kernwright.judge.judge_request import JudgeRequest
from kernwright.judge.record.verdict import UNCOUNTED, MetricResult, Outcome, RowVerdict, Verdict

AT_LIMIT = 0.95  # share of a copy; a kernel that reaches it cannot become much faster
LAUNCH_SHARE = 0.5  # share of a call's time outside its kernels; from this share on, the launch is the bottleneck


class FailedRow(BaseModel):
    """A row with the verdict `incorrect`, `tampered` or `failed`."""

    model_config = ConfigDict(frozen=True)

    row: str
    outcome: Outcome
    error: str = Field(description="reason of the fault, with the stack frames in the candidate's files")
    case: FailingCase | None = Field(description="inputs and sizes of the failing call; null for a build error")
    command: str = Field(description="one line for a shell that judges this row again with the same seed")
    exact: bool = Field(
        description="the command repeats the same calls with the same inputs: the fault was found before timing began"
    )


class RowDistance(BaseModel):
    """The times of a row in the deciding metric, and their distance to the limit."""

    model_config = ConfigDict(frozen=True)

    row: str
    outcome: Outcome
    baseline_us: float
    candidate_us: float
    kernels_us: float | None = Field(description="time of the candidate's kernels alone (metric `device`)")
    gb_per_s: float = Field(description="the row's fewest bytes over the candidate's time")
    share_of_copy: float | None = Field(description="time of the fastest plain copy over the candidate's time")
    least_us: float | None = Field(description="the least time that the row's bytes can take")
    over_least: float | None = Field(description="the candidate's time over `least_us`")
    baseline_kernels: int | None = Field(
        description="kernels that one call of the baseline launches, on a CPU its operators; null without a census"
    )
    candidate_kernels: int | None = Field(description="the same for the candidate")


class Advice(BaseModel):
    """Advice after a verdict: a sentence, the failing rows or the distances to the limit, and commands."""

    model_config = ConfigDict(frozen=True)

    sentence: str = Field(description="the next thing to do")
    failures: tuple[FailedRow, ...] = ()
    rows: tuple[RowDistance, ...] = Field(default=(), description="timed rows, the one farthest from the limit first")
    commands: tuple[NextStep, ...] = ()


def advice_after(verdict: Verdict, request: JudgeRequest) -> Advice:
    """Return the advice after the verdict on a request."""
    failures = tuple(_failed(verdict, row, request) for row in verdict.rows if row.verdict in FAULTS)
    timed = [found for row in verdict.rows if row.verdict not in FAULTS and (found := _timed(verdict, row))]
    timed.sort(key=lambda row: 1.0 if row.share_of_copy is None else row.share_of_copy)
    return Advice(
        sentence=_sentence(verdict, failures, timed),
        failures=failures,
        rows=tuple(timed),
        commands=tuple(next_steps(verdict, request)),
    )


def _failed(verdict: Verdict, row: RowVerdict, request: JudgeRequest) -> FailedRow:
    error = row.reasons[0] if row.reasons else "no reason was recorded"
    case = failing_case(error)
    return FailedRow(
        row=row.id,
        outcome=row.verdict,
        error=error,
        case=case,
        command=repeat_command(verdict, request, row.id),
        exact=case is not None and row.fastest_copy_us is None,
    )


def _timed(verdict: Verdict, row: RowVerdict) -> RowDistance | None:
    result, device = row.metrics.get(verdict.metric), row.metrics.get("device")
    if not isinstance(result, MetricResult):
        return None
    time = result.candidate_us
    return RowDistance(
        row=row.id,
        outcome=row.verdict,
        baseline_us=result.baseline_us,
        candidate_us=time,
        kernels_us=device.candidate_us if isinstance(device, MetricResult) else None,
        gb_per_s=row.bytes_min / time / 1e3,
        share_of_copy=row.fastest_copy_us / time if row.fastest_copy_us else None,
        least_us=row.least_us,
        over_least=time / row.least_us if row.least_us else None,
        baseline_kernels=_kernels(row, "baseline"),
        candidate_kernels=_kernels(row, "candidate"),
    )


def _kernels(row: RowVerdict, side: str) -> int | None:
    if side not in row.kernels:
        return None
    return sum(kernel.count for kernel in row.kernels[side] if not UNCOUNTED.fullmatch(kernel.name))


def _sentence(verdict: Verdict, failures: tuple[FailedRow, ...], timed: list[RowDistance]) -> str:
    if verdict.interrupted:
        return "The run was interrupted: judge all rows again."
    if failures:
        return _after_failures(failures)
    if not timed:
        return "The candidate is correct on every row and was not timed: judge it where rows are timed."
    worst = min(timed, key=lambda row: row.baseline_us / row.candidate_us)
    if verdict.verdict == "slower":
        ratio = worst.candidate_us / worst.baseline_us
        return f"Slower than {verdict.baseline}: row {worst.row} takes {ratio:.2f} times as long. {_bottleneck(worst)}"
    return f"{_bottleneck(timed[0])} {_after_good(verdict)}"


def _after_failures(failures: tuple[FailedRow, ...]) -> str:
    first = next((failure for failure in failures if failure.outcome == "incorrect"), failures[0])
    error = first.error.partition("\n")[0]
    if first.case is None:
        return f"Correct this fault of row {first.row} first: {error}"
    sizes = " ".join(f"{axis}={size}" for axis, size in first.case.sizes.items())
    at = f" at {sizes}" if sizes else ""
    error = LABEL.sub("", error).strip()
    return f"Correct row {first.row} first, which is {first.outcome} with {first.case.distribution} inputs{at}: {error}"


def _bottleneck(row: RowDistance) -> str:
    """Return what limits the candidate on a row, from the times and the number of kernels."""
    if row.kernels_us is not None and row.candidate_us - row.kernels_us > LAUNCH_SHARE * row.candidate_us:
        return (
            f"On row {row.row}, kernels take {row.kernels_us:.1f} of {row.candidate_us:.1f} us: "
            "the launch and the host code limit it."
        )
    if row.share_of_copy is not None and row.share_of_copy >= AT_LIMIT:
        return (
            f"Row {row.row} runs at {100 * row.share_of_copy:.0f} % of the speed of a plain copy: it is at the limit."
        )
    many = row.candidate_kernels or 0
    hint = f"; one call launches {many} kernels, and a single one would move fewer bytes" if many > 1 else ""
    if row.share_of_copy is None:
        return f"Row {row.row} moves {row.gb_per_s:.1f} GB/s{hint}."
    copy_us = row.share_of_copy * row.candidate_us
    return (
        f"Row {row.row} runs at {100 * row.share_of_copy:.0f} % of the speed of a plain copy, "
        f"which takes {copy_us:.1f} us{hint}."
    )


def _after_good(verdict: Verdict) -> str:
    if verdict.quick:
        return "The times are rough: make a full run before you rely on them."
    if verdict.verdict == "inconclusive":
        return "The times do not decide: judge the undecided rows again."
    return "Improve the first of the listed rows, or judge against a stronger baseline."
