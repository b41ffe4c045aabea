"""The report: verdicts as one self-contained HTML page, for a reader without Kernwright."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from kernwright.advice.fault import FAULTS, faults_of
from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.record.verdict import UNDECIDED, Headline, MetricResult, Outcome, RowVerdict, Unavailable, Verdict
from kernwright.ledger.files import replacing
from kernwright.report.html.page_environment import NOT_FINITE, page_environment
from kernwright.report.verdict_plots import (
    OUTCOMES,
    SHAPES,
    bandwidth_plot,
    copy_shares,
    deciding_result,
    interval_text,
    magnitude,
    speedup_plot,
)
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.policy import METRICS, Metric

# The entries of a provenance that are shown first; all others follow.
PROVENANCE_ORDER = (
    "device", "hardware", "libraries", "policy", "isolation", "seed", "command", "host", "kernwright",
    "started", "finished", "seconds", "state_before", "state_after", "sources",
)  # fmt: skip


Plot = Callable[..., Markup]


@dataclass(frozen=True)
class Remark:
    """A reason or a note, with the rows that it concerns; without rows it concerns the whole verdict."""

    text: str
    rows: tuple[str, ...] = ()
    outcome: Outcome | None = None


@dataclass(frozen=True, kw_only=True)
class Section:
    """One verdict with the figures that the template shows. Metrics are ordered, the deciding one first."""

    key: str
    verdict: Verdict
    standing: str
    headlines: dict[Metric, Headline | Unavailable]
    tally: tuple[tuple[Outcome, int], ...]
    remarks: tuple[Remark, ...]
    speedups: tuple[Markup, ...]  # a wide plot and a narrow one; nothing if no row was timed
    bandwidths: tuple[Markup, ...]
    command: str
    provenance: dict[str, Any]

    @classmethod
    def of(cls, verdict: Verdict, number: int) -> Section:
        key, decides = f"verdict-{number}", verdict.metric
        counts = Counter(row.verdict for row in verdict.rows)
        missing = Unavailable(unavailable="the verdict has no figure for it")
        speedups = any(deciding_result(row, decides) for row in verdict.rows)
        shares = any(copy_shares(row, decides) for row in verdict.rows)
        return cls(
            key=key,
            verdict=verdict,
            standing=standing(verdict),
            headlines={metric: verdict.headline.get(metric, missing) for metric in metrics_of(verdict)},
            tally=tuple((outcome, counts[outcome]) for outcome in OUTCOMES if counts[outcome]),
            remarks=tuple(remarks_of(verdict)),
            speedups=tuple(_both(speedup_plot, verdict, f"{key}-speedup")) if speedups else (),
            bandwidths=tuple(_both(bandwidth_plot, verdict, f"{key}-bandwidth")) if shares else (),
            command=repeating_command(verdict),
            provenance=ordered_provenance(verdict),
        )

    @property
    def timed(self) -> int:
        return sum(isinstance(row.metrics.get(self.verdict.metric), MetricResult) for row in self.verdict.rows)

    @property
    def others(self) -> list[Metric]:
        """The metrics that do not decide."""
        return [metric for metric in self.headlines if metric != self.verdict.metric]


def _both(plot: Plot, verdict: Verdict, key: str) -> Iterable[Markup]:
    """Return a plot for a wide screen and one for a phone."""
    return plot(verdict.rows, verdict.metric, key), plot(verdict.rows, verdict.metric, f"{key}-narrow", narrow=True)


def metrics_of(verdict: Verdict) -> list[Metric]:
    """Return the metrics, the deciding one first."""
    return sorted(METRICS, key=lambda metric: metric != verdict.metric)


def remarks_of(verdict: Verdict) -> list[Remark]:
    """Return every reason of a verdict and its rows once, with the rows that it concerns."""
    by_row: dict[str, list[str]] = {}
    for row in verdict.rows:
        for reason in row.reasons[1:] if row.verdict in FAULTS else row.reasons:
            by_row.setdefault(reason, []).append(row.id)
    for metric in metrics_of(verdict):
        for reason, rows in _unavailable(verdict, metric).items():
            by_row.setdefault(f"{metric} is not available: {reason}", []).extend(rows)
    faults = [Remark(fault.reason, tuple(fault.rows), fault.outcome) for fault in faults_of(verdict)]
    told = {reason for row in verdict.rows for reason in row.reasons}
    overall = [
        Remark(reason)
        for reason in verdict.reasons
        if reason not in told
        and not reason.startswith(UNDECIDED)
        and not any(reason.endswith(f": {known}") for known in told)
    ]
    every = len(verdict.rows)
    if verdict.not_admitted:
        overall.insert(0, Remark(f"the task is not admitted ({verdict.not_admitted}): wrong kernels may pass it"))
    return [
        *overall,
        *faults,
        *(Remark(reason, () if len(rows) == every else tuple(rows)) for reason, rows in by_row.items()),
    ]


def _unavailable(verdict: Verdict, metric: Metric) -> dict[str, list[str]]:
    """Return the reasons why a metric is not available, each with its rows."""
    found: dict[str, list[str]] = {}
    for row in verdict.rows:
        if isinstance(result := row.metrics.get(metric), Unavailable):
            found.setdefault(result.unavailable, []).append(row.id)
    headline = verdict.headline.get(metric)
    if isinstance(headline, Unavailable) and headline.unavailable not in found:
        found[headline.unavailable] = [row.id for row in verdict.rows]
    return found


def repeating_command(verdict: Verdict) -> str:
    """Return a command that judges the same pair again, with new inputs."""
    about, chosen = verdict.provenance, ["--candidate", verdict.candidate]
    if verdict.candidate == verdict.baseline:
        chosen = ["--aa"]
    elif verdict.candidate != SHIPPED and not (about.get("sources") or {}).get("candidate.toml"):
        chosen = ["--contender", verdict.candidate]
    elif (path := _option(str(about.get("command", "")), "--candidate")) is not None:
        chosen = ["--candidate", path]
    words = ["kernwright", "judge", verdict.task, *chosen, "--baseline", verdict.baseline]
    words += ["--device", str(about.get("device", "cpu")), "--metric", verdict.metric]
    ids = ",".join(row.id for row in verdict.rows)
    rows = _option(str(about.get("command", "")), "--rows") or ids
    return shlex.join([*words, "--rows", rows, *(["--quick"] if verdict.quick else [])])


def _option(command: str, name: str) -> str | None:
    """Return the value of an option in a recorded command line."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return next((after for word, after in pairwise(words) if word == name), None)


def render_page(verdicts: Sequence[Verdict], title: str) -> str:
    """Return the page as text. The same verdicts and title give the same bytes."""
    sections = [Section.of(verdict, number) for number, verdict in enumerate(verdicts, start=1)]
    return _environment().get_template("verdict_page.html.j2").render(title=title, sections=sections)


def write_page(verdicts: Sequence[Verdict], path: Path, title: str) -> None:
    """Write the page to a file. If that fails, the file keeps its former content."""
    page = render_page(verdicts, title).encode()
    try:
        with replacing(path) as stream:
            stream.write(page)
    except OSError as error:
        raise EnvironmentProblem(
            f"the report {path} cannot be written: {error.strerror or error}",
            f"make {path.absolute().parent} a writable folder with room for it, or choose another file",
        ) from error


def standing(verdict: Verdict) -> str:
    """Return whether the verdict is evidence and, if it is not, the reason."""
    if verdict.evidence and not verdict.quick:
        finished = " for the finished rows: interrupted run" if verdict.interrupted else ""
        return f"evidence{finished}"
    why = [name for name, holds in (("quick", verdict.quick), ("interrupted", verdict.interrupted)) if holds]
    return f"not evidence: {' and '.join(why) or 'partial'} run"


def ordered_provenance(verdict: Verdict) -> dict[str, Any]:
    digests = {
        "task": verdict.task_digest, "baseline": verdict.baseline_digest, "candidate": verdict.candidate_digest,
    }  # fmt: skip
    known = [name for name in PROVENANCE_ORDER if name in verdict.provenance]
    others = sorted(set(verdict.provenance) - set(known))
    return {"digests": digests} | {name: verdict.provenance[name] for name in (*known, *others)}


def figures_of(row: RowVerdict, metric: Metric) -> MetricResult | None:
    """Return the result of a metric on a row, if it was measured."""
    result = row.metrics.get(metric)
    return result if isinstance(result, MetricResult) else None


def percent(share: float | None) -> str:
    """Return a noise band as text. In a run of very few blocks it is unbounded."""
    if share is None:  # the headline of a quick run
        return "not known"
    return f"±{100 * share:.1f} %" if share < 10 else "unbounded"


def error_figure(errors: Mapping[str, float], name: str) -> str:
    value = errors.get(name)
    if value is None:
        return "–"
    return f"{value:.2e}" if math.isfinite(value) else NOT_FINITE


def yes_no(value: bool | None) -> str:
    return "not checked" if value is None else "yes" if value else "no"


def _environment() -> Environment:
    environment = page_environment()
    environment.globals |= {"METRICS": METRICS, "OUTCOMES": OUTCOMES, "SHAPES": SHAPES, "figures_of": figures_of}
    environment.filters |= {"magnitude": magnitude, "interval": interval_text, "percent": percent, "yes_no": yes_no}
    environment.filters |= {"error": error_figure}
    return environment
