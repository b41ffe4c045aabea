"""Outcome: the conclusions from the verdict on an edit: whether it improved, whether the prediction held, what is next.

All functions are pure, so that a record can be derived again from its verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.campaign.record import Idea, Prediction, RowFigure
from kernwright.campaign.state.standing import CORRECT, StandingVersion
from kernwright.judge.record.verdict import Headline, MetricResult, Outcome, RowVerdict, Verdict
from kernwright.tasks.policy import Metric


@dataclass(frozen=True)
class Figures:
    """The figures of one verdict in the deciding metric. They are None if nothing was timed."""

    run: str
    verdict: Outcome
    ratio: float | None
    interval: tuple[float, float] | None
    noise_band: float | None
    rows: tuple[RowFigure, ...]
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, verdict: Verdict) -> Figures:
        headline = verdict.headline.get(verdict.metric)
        timed = headline if isinstance(headline, Headline) else None
        return cls(
            run=verdict.run,
            verdict=verdict.verdict,
            ratio=timed.geomean if timed else None,
            interval=timed.interval if timed else None,
            noise_band=timed.noise_band if timed else None,
            rows=tuple(row_figure(row, verdict.metric) for row in verdict.rows),
            reasons=verdict.reasons,
        )


def row_figure(row: RowVerdict, metric: Metric) -> RowFigure:
    """Return the figures of a row in one metric."""
    result = row.metrics.get(metric)
    timed = result if isinstance(result, MetricResult) else None
    return RowFigure(
        id=row.id,
        baseline_us=timed.baseline_us if timed else None,
        candidate_us=timed.candidate_us if timed else None,
        ratio=timed.ratio if timed else None,
        copy_us=row.fastest_copy_us,
        least_us=row.least_us,
    )


def relative(figures: Figures, standing: StandingVersion) -> float | None:
    """Return the speedup over the standing version; None if nothing was timed."""
    return figures.ratio / standing.ratio if figures.ratio is not None else None


def improves(figures: Figures, standing: StandingVersion) -> bool:
    """Return whether a version is faster than the standing one by more than the noise.

    The verdict must be correct and decided, the gain larger than the noise band, and the standing ratio below the whole
    confidence interval.
    """
    gain = relative(figures, standing)
    if figures.verdict not in CORRECT or gain is None or figures.interval is None or figures.noise_band is None:
        return False
    return gain > 1 + figures.noise_band and figures.interval[0] > standing.ratio


def judged_prediction(idea: Idea | None, figures: Figures | None, standing: StandingVersion) -> Prediction:
    """Return whether the measured effect agrees with the predicted one.

    The effect is known up to the confidence interval, widened by the noise band. A gain is confirmed if the interval
    shows a gain and reaches the prediction; it is refuted if the interval lies below the prediction. If the interval
    has both the prediction and no effect at all, nothing is decided. A predicted loss is handled in the same way.
    """
    predicted = idea.predicted_ratio if idea else None
    if predicted is None:
        return "undecided"
    if figures is None or figures.verdict in ("incorrect", "tampered", "failed"):
        return "refuted" if predicted > 1 else "undecided"
    if figures.interval is None or figures.noise_band is None:
        return "undecided"
    low = figures.interval[0] / standing.ratio / (1 + figures.noise_band)
    high = figures.interval[1] / standing.ratio * (1 + figures.noise_band)
    if predicted == 1:
        return "confirmed" if low <= 1 <= high else "refuted"
    if predicted > 1:
        return "refuted" if high < predicted else "confirmed" if low > 1 else "undecided"
    return "refuted" if low > predicted else "confirmed" if high < 1 else "undecided"


def next_step(figures: Figures | None, improved: bool, target: float | None, ratio: float) -> str:
    """Return the advice that follows from an outcome.

    Args:
        ratio: speedup of the version that stands after the iteration.
    """
    if figures is None:
        return "make an edit that can be judged"
    if figures.verdict in ("incorrect", "tampered", "failed"):
        return f"correct it first: {'; '.join(figures.reasons[:2]) or figures.verdict}"
    if figures.ratio is None:
        return "it was not timed: judge it on a device that times it"
    distance = f"; {target / ratio:.2f}x remain to the bandwidth limit" if target else ""
    if improved:
        return f"continue from this version{distance}"
    if figures.verdict == "inconclusive":
        return f"undecided: try a larger effect, or an idle machine{distance}"
    return f"try another direction{distance}"
