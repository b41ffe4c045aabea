"""The page of a trace as one self-contained HTML file. All text that comes from the trace is escaped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from kernwright.core.errors import EnvironmentProblem
from kernwright.diagnose.category import CATEGORIES, Category
from kernwright.diagnose.hotspots.confidence import Confidence, confidence_of
from kernwright.diagnose.hotspots.hotspot import Hotspot, Status
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis
from kernwright.diagnose.kernel_name import short_name
from kernwright.diagnose.steps import steps_of
from kernwright.ledger.files import replacing
from kernwright.report.diagnosis.plots import IDLE, StepBar, step_bars, timeline_plot
from kernwright.report.diagnosis.timeline import timeline_of, typical_steps
from kernwright.report.html.page_environment import page_environment

COLUMNS = {False: 1000, True: 340}
LEAST_SHARE = 0.01
REMOVABLE: tuple[Status, ...] = ("covered, off", "partly", "in flight", "new")


@dataclass(frozen=True, kw_only=True)
class HotspotRow:
    """One hotspot as the page shows it.

    Attributes:
        saved_share: the expected saving as a part of all GPU time.
        basis: the reason for the confidence.
    """

    hotspot: Hotspot
    confidence: Confidence
    basis: str
    saved_share: float

    @property
    def kernels(self) -> list[str]:
        """The short names of its kernels, longest first."""
        return list(dict.fromkeys(short_name(kernel.name) for kernel in self.hotspot.kernels))

    @property
    def open_work(self) -> list[str]:
        path = self.hotspot.coverage.path
        return [str(work) for work in path.open_work] if path else []


@dataclass(frozen=True, kw_only=True)
class StepSection:
    """One kind of step with its timeline: a wide plot and a narrow one."""

    name: str
    count: int
    ms: float
    plots: tuple[Markup, ...]


def render_diagnosis(diagnosis: Diagnosis, title: str, least_share: float = LEAST_SHARE) -> str:
    """Return the page as text. The same diagnosis and title give the same bytes."""
    rows = [_row(hotspot, diagnosis.gpu_us) for hotspot in diagnosis.hotspots]
    listed = [row for row in rows if row.hotspot.share >= least_share]
    removable = [row for row in listed if row.hotspot.coverage.status in REMOVABLE]
    bars = step_times(diagnosis)
    return (
        _environment()
        .get_template("diagnosis/page.html.j2")
        .render(
            title=title,
            diagnosis=diagnosis,
            bars=[step_bars(bars, f"bars-{narrow}", narrow=narrow) for narrow in (False, True)],
            categories=[each for each in CATEGORIES if any(each == name for bar in bars for name, _ in bar.parts)],
            steps=_sections(diagnosis),
            removable=sorted(removable, key=lambda row: -row.saved_share),
            listed=listed,
            left_out=len(rows) - len(listed),
            least_share=least_share,
            new_share=sum(hotspot.share for hotspot in diagnosis.with_status("new")),
        )
    )


def write_diagnosis(diagnosis: Diagnosis, path: Path, title: str, least_share: float = LEAST_SHARE) -> None:
    """Write the page to a file. If that fails, the file keeps its former content."""
    page = render_diagnosis(diagnosis, title, least_share).encode()
    try:
        with replacing(path) as stream:
            stream.write(page)
    except OSError as error:
        raise EnvironmentProblem(
            f"the page {path} cannot be written: {error.strerror or error}",
            f"make {path.absolute().parent} a writable folder with room for it, or choose another file",
        ) from error


def _row(hotspot: Hotspot, total: float) -> HotspotRow:
    confidence, basis = confidence_of(hotspot)
    saved = hotspot.saving.us / total if hotspot.saving and total else 0.0
    return HotspotRow(hotspot=hotspot, confidence=confidence, basis=basis, saved_share=saved)


def step_times(diagnosis: Diagnosis) -> list[StepBar]:
    """Return the mean time of a step of each kind: by category, largest first, then idle."""
    bars = []
    for step in diagnosis.steps:
        if not step.count or not step.span_us:
            continue
        times: dict[Category, float] = {}
        for hotspot in diagnosis.hotspots:
            us = hotspot.step_us.get(step.name, 0.0) if step.name else hotspot.us
            times[hotspot.category] = times.get(hotspot.category, 0.0) + us
        overlapped = min(1.0, step.busy_us / step.gpu_us) if step.gpu_us else 1.0  # streams that run at the same time
        ordered = sorted(times.items(), key=lambda item: -item[1])
        parts: list[tuple[Category | str, float]] = [(name, us * overlapped / step.count) for name, us in ordered if us]
        parts.append((IDLE, step.idle_us / step.count))
        bars.append(StepBar(name=step.name, count=step.count, parts=tuple(parts)))
    return bars


def _sections(diagnosis: Diagnosis) -> list[StepSection]:
    categories = {
        id(event): work.category for hotspot in diagnosis.hotspots for work in hotspot.works for event in work.events
    }
    sections = []
    for number, (step, count) in enumerate(typical_steps(steps_of(diagnosis.trace), diagnosis.trace.gpu)):
        drawn = []
        for narrow, columns in COLUMNS.items():
            timeline = timeline_of(step, count, categories, columns)
            drawn.append(timeline_plot(timeline, f"timeline-{number}-{narrow}", narrow=narrow))
        sections.append(StepSection(name=step.name, count=count, ms=step.duration_us / 1e3, plots=tuple(drawn)))
    return sections


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _ms(us: float) -> str:
    return f"{us / 1e3:.3f} ms"


def _environment() -> Environment:
    environment = page_environment()
    environment.filters |= {"percent": _percent, "ms": _ms, "status_kind": status_kind}
    return environment


def status_kind(status: Status) -> str:
    """Return the class of a status in the style sheet."""
    return status.replace(",", "").replace(" ", "-")
