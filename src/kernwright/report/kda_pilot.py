"""KDA-Pilot: what the best published campaign measured on the rows that are frozen here, beside ours."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kernwright.tasks.policy import Metric

FILE = Path(__file__).with_name("kda_pilot.json")
STARTED_FROM = "sglang@0.5.12.post1"  # the release whose kernels it started from


class Clock(BaseModel):
    """One of its ways to take a time, and which of ours it is closest to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ours: Metric
    means: str


class PilotRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    row: str
    gpu: str
    clock: str
    ratio: float
    baseline_us: float | None
    us: float | None
    against: str = STARTED_FROM


class KdaPilot(BaseModel):
    """Its figures, all of them other people's, by our rows' names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    origin: str
    against: str
    clocks: dict[str, Clock]
    rows: tuple[PilotRow, ...]

    def of(self, family: str) -> list[PilotRow]:
        return [row for row in self.rows if row.family == family]


@cache
def kda_pilot() -> KdaPilot:
    return KdaPilot.model_validate_json(FILE.read_text(encoding="utf-8"))
