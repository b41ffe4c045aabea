"""Score: one verdict as a line of the scoreboard; the best score of each comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernwright.core.errors import LedgerError
from kernwright.judge.record.recorded import RecordedBody, recorded_bodies
from kernwright.judge.record.verdict import Headline, Verdict

if TYPE_CHECKING:
    from kernwright.ledger.ledger import Ledger

RANKED = frozenset({"faster", "same", "slower"})  # verdicts with a speedup that was established
UNKNOWN = "?"


@dataclass(frozen=True, kw_only=True)
class Score:
    """One verdict as a line of the scoreboard. The speedup is that of the deciding metric, over all timed rows."""

    run: str
    task: str
    task_digest: str
    candidate: str
    baseline: str
    device: str
    metric: str
    verdict: str
    rows: tuple[str, ...]
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    evidence: bool = False

    @classmethod
    def of(cls, record: RecordedBody) -> Score:
        """Return the score of a recorded verdict; of one that cannot be read, the names that it holds."""
        try:
            verdict = record.verdict()
        except LedgerError:
            return cls(
                run=record.run,
                task=_text(record.body.get("task")),
                task_digest="",
                candidate=_text(record.body.get("candidate")),
                baseline=_text(record.body.get("baseline")),
                device=UNKNOWN,
                metric=UNKNOWN,
                verdict=_text(record.body.get("verdict")),
                rows=(),
            )
        return cls.of_verdict(record.run, verdict)

    @classmethod
    def of_verdict(cls, run: str, verdict: Verdict) -> Score:
        """Return the score of a verdict."""
        found = verdict.headline.get(verdict.metric)
        headline = found if isinstance(found, Headline) and verdict.verdict in (*RANKED, "inconclusive") else None
        return cls(
            run=run,
            task=verdict.task,
            task_digest=verdict.task_digest,
            candidate=verdict.candidate,
            baseline=verdict.baseline,
            device=_device(verdict.provenance),
            metric=verdict.metric,
            verdict=verdict.verdict,
            rows=tuple(sorted(row.id for row in verdict.rows)),
            speedup=headline.geomean if headline else None,
            interval=headline.interval if headline else None,
            evidence=verdict.evidence,
        )

    @property
    def group(self) -> tuple[str, str, str, str]:
        """Return the names that a table of the scoreboard has in common."""
        return self.task, self.baseline, self.device, self.metric

    @property
    def comparison(self) -> tuple[object, ...]:
        """Return what two verdicts must have in common to be compared: also the rows, in the same version."""
        return *self.group, self.task_digest, self.rows

    def as_record(self, best: bool) -> dict[str, Any]:
        """Return the score for JSON."""
        return {
            "task": self.task, "candidate": self.candidate, "baseline": self.baseline, "device": self.device,
            "metric": self.metric, "verdict": self.verdict, "rows": len(self.rows), "speedup": self.speedup,
            "interval": self.interval, "evidence": self.evidence, "best": best,
        }  # fmt: skip


def scores_of(ledger: Ledger, run: str) -> list[Score]:
    """Return the scores of one run. Raises LedgerError if the run is damaged."""
    return [Score.of(record) for record in recorded_bodies(ledger, runs=[run])]


def best_scores(scores: Iterable[Score]) -> set[Score]:
    """Return the best score of each comparison: the highest speedup that is evidence."""
    best: dict[tuple[object, ...], Score] = {}
    for score in scores:
        if not (score.evidence and score.verdict in RANKED and score.speedup is not None):
            continue
        known = best.get(score.comparison)
        if known is None or score.speedup > (known.speedup or 0.0):
            best[score.comparison] = score
    return set(best.values())


def _device(provenance: Mapping[str, Any]) -> str:
    """Return the model of the device, or its kind if the model was not recorded."""
    hardware = provenance.get("hardware")
    known = hardware if isinstance(hardware, Mapping) else {}
    kind = _text(provenance.get("device"))
    model = _text(known.get("model") or known.get("kind") or kind)
    return f"{kind}: {model}" if kind == "cpu" != model else model


def _text(value: object) -> str:
    return value if isinstance(value, str) else UNKNOWN
