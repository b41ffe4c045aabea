"""Verdict: what the judge found, row by row and over all rows, with figures and reasons."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernwright.tasks.policy import Metric

Outcome = Literal["faster", "same", "slower", "inconclusive", "incorrect", "tampered", "failed"]
UNTIMED = "correct; rows of the grid are not timed"
GOOD: frozenset[Outcome] = frozenset({"faster", "same"})


class MetricResult(BaseModel):
    """One metric of one row. Ratio is baseline time over candidate time: above one, the candidate is faster."""

    model_config = ConfigDict(frozen=True)

    ratio: float
    interval: tuple[float, float] = Field(description="of the ratio, at the policy's level for all looks together")
    noise_band: float = Field(description="how far the baseline lies from itself, as a share; no less than the floor")
    baseline_us: float
    candidate_us: float
    quads: int
    by_events: bool = Field(default=False, description="timed by the device's own events: all of its sides are trusted")
    outcome: Outcome


class Unavailable(BaseModel):
    """A metric that could not be measured, and why. It is never guessed."""

    model_config = ConfigDict(frozen=True)

    unavailable: str


class Kernel(BaseModel):
    """A kernel that one call of a side launches."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(max_length=300)
    stream: int = Field(description="or, in a graph, the chain of nodes that wait for each other")
    count: int


class RanImplementation(BaseModel):
    """The implementation of a shipped op that a row's calls end in, as the worker tells it, and why no better one."""

    model_config = ConfigDict(frozen=True)

    backend: str = Field(max_length=20)
    contract: str = Field(max_length=20)
    refused: tuple[str, ...] = Field(default=(), max_length=20)

    @property
    def fell_back(self) -> bool:
        return self.backend == "torch"

    @property
    def stands_in(self) -> str | None:
        """What a reader must know of a row that another implementation ran than the one that is best where it ran."""
        if self.fell_back:
            return f"no kernel ran, but the reference: {'; '.join(self.refused) or 'there is nothing else'}"
        cuda = next((answer for answer in self.refused if answer.startswith("cuda")), None)
        return f"triton ran: {cuda}" if self.backend == "triton" and cuda else None


class RowVerdict(BaseModel):
    """One row: its verdict, why, and the evidence that this verdict has."""

    model_config = ConfigDict(frozen=True)

    id: str
    op: str
    verdict: Outcome
    reasons: tuple[str, ...] = ()
    metrics: dict[Metric, MetricResult | Unavailable] = Field(default_factory=dict)
    errors: dict[str, dict[str, float | None]] = Field(
        default_factory=dict, description="per output, normal inputs at the frozen size: max and RMS, own and eager's"
    )
    cases: int = Field(default=0, description="correctness cases that ran")
    deterministic: bool | None = None
    kernels: dict[str, list[Kernel]] = Field(
        default_factory=dict, description="per side, what a call launches: a pass of its own, as the worker saw it"
    )
    ran: RanImplementation | None = None
    bytes_min: int
    fastest_copy_us: float | None = Field(
        default=None, description="a plain copy of the same fewest bytes, in the same run, the fastest way there is"
    )
    least_us: float | None = Field(default=None, description="the least time that the row's bytes can take")
    samples: str | None = Field(default=None, description="schema 1 only: the blob that holds every block's time")


class Headline(BaseModel):
    """Equal-weight geometric mean over the rows that have the metric, with the worst row beside it."""

    model_config = ConfigDict(frozen=True)

    geomean: float
    interval: tuple[float, float] | None = Field(description="none in a quick run: too few quads for one")
    noise_band: float | None
    worst_row: str
    worst_ratio: float
    rows: int


class Verdict(BaseModel):
    """The whole judgement, as it stands in the ledger and in --json."""

    model_config = ConfigDict(frozen=True)

    schema_version: int = 2  # 2: samples are stored once, in the rounds of the run
    task: str
    task_digest: str
    baseline: str
    baseline_digest: str
    candidate: str
    candidate_digest: str
    style: str
    verdict: Outcome
    reasons: tuple[str, ...]
    headline: dict[Metric, Headline | Unavailable]
    rows: tuple[RowVerdict, ...]
    quick: bool = False
    interrupted: bool = False
    evidence: bool = Field(description="false for quick and seeded runs, and interrupted ones without a finished row")
    provenance: dict[str, Any]

    @property
    def exit_status(self) -> int:
        """0: correct and not slower; 1: any other verdict; 2: interrupted before there was one."""
        if self.interrupted:
            return 2
        return 0 if self.verdict in GOOD else 1
