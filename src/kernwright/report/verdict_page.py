"""The report: verdicts as one self-contained HTML page, for a reader who has no Kernwright at hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernwright.core.errors import EnvironmentProblem
from kernwright.core.plain_text import plain
from kernwright.judge.record.verdict import Headline, MetricResult, Outcome, RowVerdict, Unavailable, Verdict
from kernwright.ledger.files import replacing
from kernwright.report.verdict_plots import (
    OUTCOMES,
    SHAPES,
    bandwidth_plot,
    interval_text,
    magnitude,
    speedup_plot,
)
from kernwright.tasks.policy import METRICS, Metric, TimingPolicy

# What a reader asks for first; anything else that a provenance holds follows these.
PROVENANCE_ORDER = (
    "device", "hardware", "libraries", "policy", "isolation", "seed", "command", "host", "kernwright",
    "started", "finished", "seconds", "state_before", "state_after", "sources",
)  # fmt: skip
NOT_FINITE = "not finite"


@dataclass(frozen=True)
class Section:
    """One verdict as the template reads it: what has to be worked out before it can be shown."""

    key: str
    verdict: Verdict
    decides: Metric
    standing: str
    headlines: dict[Metric, Headline | Unavailable]
    tally: tuple[tuple[Outcome, int], ...]
    wide: dict[Metric, bool]
    speedups: Markup
    bandwidths: Markup
    provenance: dict[str, Any]

    @classmethod
    def of(cls, verdict: Verdict, number: int) -> Section:
        key, decides = f"verdict-{number}", deciding_metric(verdict)
        counts = Counter(row.verdict for row in verdict.rows)
        missing = Unavailable(unavailable="this verdict has no figure for it")
        return cls(
            key=key,
            verdict=verdict,
            decides=decides,
            standing=standing(verdict),
            headlines={metric: verdict.headline.get(metric, missing) for metric in METRICS},
            tally=tuple((outcome, counts[outcome]) for outcome in OUTCOMES if counts[outcome]),
            # A metric that no row has needs one narrow column for the reason, not five empty ones.
            wide={m: any(isinstance(row.metrics.get(m), MetricResult) for row in verdict.rows) for m in METRICS},
            speedups=speedup_plot(verdict.rows, decides, f"{key}-speedup"),
            bandwidths=bandwidth_plot(verdict.rows, decides, f"{key}-bandwidth"),
            provenance=ordered_provenance(verdict),
        )

    @property
    def timed(self) -> int:
        return sum(isinstance(row.metrics.get(self.decides), MetricResult) for row in self.verdict.rows)


def render_page(verdicts: Sequence[Verdict], title: str) -> str:
    """The page as text. The same verdicts and title give the same bytes: it carries no clock of its own."""
    sections = [Section.of(verdict, number) for number, verdict in enumerate(verdicts, start=1)]
    return _environment().get_template("verdict_page.html.j2").render(title=title, sections=sections)


def write_page(verdicts: Sequence[Verdict], path: Path, title: str) -> None:
    """The page as a file: all of it, or what stood there before."""
    page = render_page(verdicts, title).encode()
    try:
        with replacing(path) as stream:
            stream.write(page)
    except OSError as error:
        raise EnvironmentProblem(
            f"the report {path} cannot be written: {error.strerror or error}",
            f"make {path.absolute().parent} a writable folder with room for it, or choose another file",
        ) from error


def deciding_metric(verdict: Verdict) -> Metric:
    """The metric that the policy of this run let decide."""
    policy = verdict.provenance.get("policy")
    told = policy.get("decides") if isinstance(policy, Mapping) else None
    return next((metric for metric in METRICS if metric == told), TimingPolicy().decides)


def standing(verdict: Verdict) -> str:
    """Whether the verdict proves anything, and if not, why not."""
    if verdict.evidence and not verdict.quick:
        admission = f", on a task that is not admitted: {verdict.not_admitted}" if verdict.not_admitted else ""
        finished = ", of the rows that were finished: interrupted run" if verdict.interrupted else ""
        return f"evidence{finished}{admission}"
    why = [name for name, holds in (("quick", verdict.quick), ("interrupted", verdict.interrupted)) if holds]
    return f"not evidence: {' and '.join(why) or 'partial'} run"


def ordered_provenance(verdict: Verdict) -> dict[str, Any]:
    digests = {
        "task": verdict.task_digest, "baseline": verdict.baseline_digest, "candidate": verdict.candidate_digest,
    }  # fmt: skip
    known = [name for name in PROVENANCE_ORDER if name in verdict.provenance]
    others = sorted(set(verdict.provenance) - set(known))
    return {"digests": digests} | {name: verdict.provenance[name] for name in (*known, *others)}


def row_cells(row: RowVerdict, metric: Metric) -> tuple[str, ...] | str:
    """Five figures, or the reason why there are none."""
    match row.metrics.get(metric):
        case MetricResult() as result:
            return (
                magnitude(result.baseline_us),
                magnitude(result.candidate_us),
                f"{magnitude(result.ratio)}×",
                interval_text(result.interval),
                percent(result.noise_band),
            )
        case Unavailable(unavailable=why):
            return f"not available: {why}"
        case _:
            return "not timed"


def percent(share: float | None) -> str:
    """A noise band; a run of very few blocks has one beyond all measure."""
    if share is None:  # a quick run's headline has none
        return "not known"
    return f"±{100 * share:.1f} %" if share < 10 else "unbounded"


def error_figure(errors: Mapping[str, float], name: str) -> str:
    value = errors.get(name)
    if value is None:
        return "–"
    return f"{value:.2e}" if math.isfinite(value) else NOT_FINITE


def yes_no(value: bool | None) -> str:
    return "not checked" if value is None else "yes" if value else "no"


def _shown(value: object) -> object:
    """Every value on its way into the page, before it is escaped."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else NOT_FINITE
    return plain(value, newlines=True)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kernwright.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"METRICS": METRICS, "OUTCOMES": OUTCOMES, "SHAPES": SHAPES, "row_cells": row_cells}
    environment.filters |= {"magnitude": magnitude, "interval": interval_text, "percent": percent, "yes_no": yes_no}
    environment.filters |= {"error": error_figure}
    return environment
