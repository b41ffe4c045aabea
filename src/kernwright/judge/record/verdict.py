"""Verdict: the result of a judgement for each row and over all rows, with figures and reasons."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kernwright.tasks.policy import METRICS, Metric

Outcome = Literal["faster", "same", "slower", "inconclusive", "incorrect", "tampered", "failed"]
UNTIMED = "correct; rows of the grid are not timed"
INTERPRETED = "correct; not timed, because a CPU runs Triton kernels in an interpreter: use --device cuda"
NOT_TIMED = frozenset({UNTIMED, INTERPRETED})  # reasons of rows that were checked and are not timed
UNDECIDED = "undecided on"  # begins the reason that names undecided rows
SHOWN_NAMES, SHOWN_NAME = 6, 60  # operators in a note, and characters of each
GOOD: frozenset[Outcome] = frozenset({"faster", "same"})


class MetricResult(BaseModel):
    """One metric of one row. The ratio is baseline time over candidate time: above 1, the candidate is faster."""

    model_config = ConfigDict(frozen=True)

    ratio: float
    interval: tuple[float, float] = Field(description="confidence interval of the ratio")
    noise_band: float = Field(description="relative difference between the baseline and its twin; at least the floor")
    baseline_us: float
    candidate_us: float
    quads: int
    by_events: bool = Field(default=False, description="timed by device events; only if all sides are trusted")
    outcome: Outcome = Field(description="outcome of the interval alone, before the checks that may reject a gain")


class Unavailable(BaseModel):
    """A metric that could not be measured, with the reason."""

    model_config = ConfigDict(frozen=True)

    unavailable: str


class Kernel(BaseModel):
    """A kernel that one call of a side launches, or on a CPU an operator of torch that it calls."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(max_length=300)
    stream: int = Field(description="number of the stream; in a graph, of the chain of dependent nodes")
    count: int


# Operators that allocate memory or make views, and copies, as the profiler names them.
UNCOUNTED = re.compile(
    r"(aten::(empty|empty_like|empty_strided|new_empty|view|reshape|as_strided|slice|select|narrow|expand|squeeze"
    r"|unsqueeze|permute|transpose|t|flatten|unflatten|detach|alias|split|chunk|unbind)|mem(set|cpy)\b.*)",
    re.IGNORECASE,
)


def baselines_own(kernels: dict[str, list[Kernel]]) -> str | None:
    """Return a note if a call of the candidate ends in the baseline's own operators and no others; otherwise None.

    The names are what the workers report. A candidate that hides its operators is not found this way.
    """
    baseline, candidate = (
        dict.fromkeys(kernel.name for kernel in kernels.get(side, ()) if not UNCOUNTED.fullmatch(kernel.name))
        for side in ("baseline", "candidate")
    )
    if not candidate or candidate.keys() != baseline.keys():
        return None
    names = [name if len(name) <= SHOWN_NAME else f"{name[:SHOWN_NAME]}..." for name in candidate]
    further = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"its calls end in the baseline's own operators: {', '.join(names[:SHOWN_NAMES])}{further}"


class RanImplementation(BaseModel):
    """The implementation of a shipped op that ran, and why better ones were refused, as reported by the worker."""

    model_config = ConfigDict(frozen=True)

    backend: str = Field(max_length=20)
    contract: str = Field(max_length=20)
    refused: tuple[str, ...] = Field(default=(), max_length=20)

    @property
    def fell_back(self) -> bool:
        return self.backend == "torch"

    @property
    def fallback_note(self) -> str | None:
        """A note for the reader if the best implementation of the device did not run; otherwise None."""
        if self.fell_back:
            return f"the reference ran instead of a kernel: {'; '.join(self.refused) or 'there is no kernel'}"
        cuda = next((answer for answer in self.refused if answer.startswith("cuda")), None)
        return f"triton ran: {cuda}" if self.backend == "triton" and cuda else None


class RowVerdict(BaseModel):
    """The verdict on one row, with its reasons and figures."""

    model_config = ConfigDict(frozen=True)

    id: str
    op: str
    verdict: Outcome
    reasons: tuple[str, ...] = ()
    metrics: dict[Metric, MetricResult | Unavailable] = Field(default_factory=dict)
    errors: dict[str, dict[str, float | None]] = Field(
        default_factory=dict,
        description="by output, maximum and RMS error of the candidate and of the eager chain, with normal inputs",
    )
    cases: int = Field(default=0, description="correctness cases that ran")
    repeated_cases: int = Field(
        default=0, description="cases that ran again with fresh inputs, because their error may have been chance"
    )
    deterministic: bool | None = None
    kernels: dict[str, list[Kernel]] = Field(
        default_factory=dict,
        description="by side, the kernels of one untimed call, or on a CPU its operators, as reported by the worker",
    )
    ran: RanImplementation | None = None
    process_calls: int = Field(
        default=0,
        description="calls that one process of the candidate had made, on all rows, after the long run on this row",
    )
    bytes_min: int
    fastest_copy_us: float | None = Field(
        default=None, description="time of the fastest plain copy that moves `bytes_min`, measured in the same run"
    )
    least_us: float | None = Field(default=None, description="the least time that the row's bytes can take")
    samples: str | None = Field(default=None, description="schema 1 only: reference of the blob with all block times")


class Headline(BaseModel):
    """One metric over all timed rows: its outcome, and the equal-weight geometric mean with its interval.

    In the mean, a row in doubt has no larger gain than the upper end of its interval in single calls.
    """

    model_config = ConfigDict(frozen=True)

    geomean: float
    interval: tuple[float, float] | None = Field(description="None in a quick run, which has too few quads")
    noise_band: float | None
    worst_row: str
    worst_ratio: float
    rows: int
    outcome: Outcome | None = Field(default=None, description="None in records of schema 1 and 2, which lack it")
    level: float | None = Field(default=None, description="confidence level of the interval, that of the rows")
    undecided: tuple[str, ...] = Field(default=(), description="ids of the rows that are inconclusive in this metric")
    in_doubt: tuple[str, ...] = Field(
        default=(), description="ids of the rows whose ratio the row's further checks did not confirm"
    )


class Verdict(BaseModel):
    """The result of a judgement, as stored in the ledger and printed by --json."""

    model_config = ConfigDict(frozen=True)

    schema_version: int = 3  # 2: samples are stored once, in the rounds of the run; 3: headlines have outcomes
    task: str
    task_digest: str
    baseline: str
    baseline_digest: str
    candidate: str
    candidate_digest: str
    style: str
    metric: Metric = Field(default="stream", description="the deciding metric; records before schema 3: the policy's")
    verdict: Outcome
    reasons: tuple[str, ...]
    headline: dict[Metric, Headline | Unavailable]
    rows: tuple[RowVerdict, ...]
    quick: bool = False
    interrupted: bool = False
    evidence: bool = Field(description="False for quick and seeded runs, and for runs interrupted before any row ended")
    not_admitted: str | None = Field(
        default=None,
        description="why `kernwright task check` does not vouch for the task; None if it is admitted",
    )
    provenance: dict[str, Any]
    run: str = Field(default="", description="id of the run in the ledger; empty in records that predate this field")

    @model_validator(mode="before")
    @classmethod
    def _metric_of_the_policy(cls, values: Any) -> Any:
        """Take the deciding metric of records before schema 3 from the policy in their provenance."""
        if isinstance(values, dict) and "metric" not in values:
            policy = (values.get("provenance") or {}).get("policy")
            if isinstance(policy, dict) and policy.get("decides") in METRICS:
                return values | {"metric": policy["decides"]}
        return values

    def outcome_of(self, metric: Metric) -> Outcome | None:
        """Return the outcome of one metric over all rows; None if no row has it or the record lacks it."""
        headline = self.headline.get(metric)
        return headline.outcome if isinstance(headline, Headline) else None

    @property
    def exit_status(self) -> int:
        """0 if correct and not slower, 1 for any other verdict, 2 if interrupted."""
        if self.interrupted:
            return 2
        return 0 if self.verdict in GOOD else 1
