"""KDA-Pilot: the figures of the best published campaign on our frozen rows, next to ours."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kernwright.judge.record.verdict import MetricResult
from kernwright.report.markdown import ratio_text, time_text
from kernwright.report.results.results import Results, geomean
from kernwright.tasks.policy import Metric
from kernwright.tasks.task import Task

FILE = Path(__file__).with_name("kda_pilot.json")
STARTED_FROM = "sglang@0.5.12.post1"  # the release with whose kernels it started
PRESENT = "sglang@0.5.23"  # the release with which ours are compared


class Clock(BaseModel):
    """One of its metrics, and our closest metric."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ours: Metric
    means: str


class PilotRow(BaseModel):
    """One published figure."""

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
    """All published figures, under the names of our rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    origin: str
    against: str
    clocks: dict[str, Clock]
    rows: tuple[PilotRow, ...]

    def of(self, family: str) -> list[PilotRow]:
        """Return the figures of one family."""
        return [row for row in self.rows if row.family == family]


@cache
def kda_pilot() -> KdaPilot:
    """Return the figures of kda_pilot.json."""
    return KdaPilot.model_validate_json(FILE.read_text(encoding="utf-8"))


def introduction() -> list[str]:
    pilot = kda_pilot()
    clocks = "; ".join(
        f"`{name}` is compared with our `{clock.ours}` ({clock.means})" for name, clock in pilot.clocks.items()
    )
    return [f"{pilot.origin} Its ratios are against {pilot.against}. Its clocks: {clocks}."]


def row_table(results: Results, task: Task) -> list[str]:
    judged = {row.id: row for row in results.judged(task)}
    rows = [own for own in kda_pilot().of(task.name) if own.row in judged]
    if not rows:
        return []
    lines = [
        "| row | its GPU and clock | its us | its ratio | our time | our us | ratio to the same baseline | ratio to "
        + PRESENT
        + " |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for own in rows:
        metric = kda_pilot().clocks[own.clock].ours
        same, now = (results.result(task, own.row, name, metric) for name in (own.against, PRESENT))
        ours = same or now
        cells = [
            own.row, f"{own.gpu}, {own.clock}", time_text(own.us) if own.us else "–", f"{own.ratio:.2f}x", metric,
            time_text(ours.candidate_us) if ours else "–",
            f"{ratio_text(same)} against {own.against}" if same else "–", ratio_text(now) if now else "–",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def family_table(results: Results) -> list[str]:
    head = "| family | its GPU and clock | rows with both | its geomean | our time and baseline | our geomean |"
    lines = [head, "|---|---|---|---|---|---|"]
    for task in results.families:
        groups: dict[tuple[str, str], list[tuple[PilotRow, MetricResult]]] = {}
        for own in kda_pilot().of(task.name):
            metric = kda_pilot().clocks[own.clock].ours
            if (result := results.result(task, own.row, own.against, metric)) is not None:
                groups.setdefault((own.gpu, own.clock), []).append((own, result))
        for (gpu, clock), pairs in groups.items():
            its, ours = geomean(own.ratio for own, _ in pairs), geomean(result.ratio for _, result in pairs)
            assert its is not None and ours is not None
            against = ", ".join(sorted({own.against for own, _ in pairs}))
            told = f"{kda_pilot().clocks[clock].ours} against {against}"
            lines.append(f"| {task.name} | {gpu}, {clock} | {len(pairs)} | {its[0]:.2f}x | {told} | {ours[0]:.2f}x |")
    return lines if len(lines) > 2 else [f"Nothing was judged against {STARTED_FROM} on its rows yet."]
