"""The timing policy that a task writes, and the one that runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Metric = Literal["wall", "stream", "device"]
METRICS: tuple[Metric, ...] = ("wall", "stream", "device")
LEAST_QUADS = 6  # fewer quads have no 95 % interval, whatever their values are
Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=10_000)]


class TimingOverrides(BaseModel):
    """The fields that a task file may set; the others are inherited."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decides: Metric | None = None
    threads: Count | None = None
    block_ms: Annotated[float, Field(gt=0, le=10_000)] | None = None
    gpu_block_ms: Annotated[float, Field(gt=0, le=10_000)] | None = None
    quads_per_round: Count | None = None
    first_look: Count | None = None
    max_rounds: Count | None = None
    error_budget: Share | None = None
    band_floor: Share | None = None
    same_margin: Share | None = None
    least_difference_us: Annotated[float, Field(ge=0)] | None = None
    row_budget_s: Annotated[float, Field(gt=0)] | None = None


class TimingPolicy(BaseModel):
    """A policy with every field set. A verdict ran under it, and the digest of a task covers it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decides: Metric = Field(default="stream", description="the metric whose outcome is the row's verdict")
    threads: Count = Field(default=1, description="processor threads each side may use")
    block_ms: float = Field(default=4.0, description="how long a timed block aims to last on a CPU at first")
    gpu_block_ms: float = Field(default=2.5, description="and on a GPU, where switching processes costs more")
    quads_per_round: Count = Field(default=4, description="mirrored quads a row gets before workers are respawned")
    first_look: Count = Field(default=2, description="the round after which a row may first be decided")
    max_rounds: Count = Field(default=5, description="rounds after which an undecided row is inconclusive")
    error_budget: Share = Field(default=0.05, description="chance of a wrong interval, spent evenly over the looks")
    band_floor: Share = Field(default=0.01, description="no difference below this is called a difference")
    same_margin: Share = Field(default=0.03, description="an interval inside this margin shows two equal sides")
    least_difference_us: float = Field(default=0.3, description="no absolute difference below this is called one")
    row_budget_s: float = Field(default=20.0, description="judging time a row may take, builds aside")

    @classmethod
    def resolved(cls, overrides: TimingOverrides) -> TimingPolicy:
        return cls(**overrides.model_dump(exclude_none=True))

    def quads_of(self, metric: Metric) -> int:
        """Return the number of quads of a metric in a round. Metrics that do not decide may have fewer.

        Their intervals count, too, because `wall` must confirm a gain. So at the first look they have at least as many
        quads as an interval needs.
        """
        if metric == self.decides:
            return self.quads_per_round
        least = -(-LEAST_QUADS // self.first_look) if self.quads_per_round * self.first_look >= LEAST_QUADS else 1
        return max(least, self.quads_per_round - 1)

    @property
    def looks(self) -> int:
        return max(1, self.max_rounds - self.first_look + 1)

    @property
    def level(self) -> float:
        """Return the confidence level of the interval at one look. All looks together then keep the error budget."""
        return 1.0 - self.error_budget / self.looks

    def quick(self) -> TimingPolicy:
        """Return a policy for the edit loop, which never makes evidence."""
        return self.model_copy(update={"quads_per_round": 2, "first_look": 1, "max_rounds": 1})
