"""Plots of the page of a trace, drawn as inline SVG: the time of each kind of step, and the timeline of one step.

Colours come from the page's style sheet. Every box has a text, for the pointer and for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kernwright.diagnose.category import Category
from kernwright.diagnose.idle_time import Gap
from kernwright.diagnose.kernel_name import short_name
from kernwright.report.diagnosis.timeline import Timeline
from kernwright.report.verdict_plots import NARROW_WIDTH, WIDTH, element, text_at

LANE = 22.0
LANE_GAP = 6.0
AXIS = 24.0
HEADING = 18.0
BAR = 26.0
MARGIN = 6.0
MOST_TICKS = {False: 10, True: 4}
LEAST_LABELLED = 46.0  # a part of a bar that is narrower has no label
IDLE = "idle"


@dataclass(frozen=True, kw_only=True)
class StepBar:
    """The time of one step of a group: by category, and idle."""

    name: str
    count: int
    parts: tuple[tuple[Category | str, float], ...]

    @property
    def us(self) -> float:
        return sum(us for _, us in self.parts)


def step_bars(bars: Sequence[StepBar], key: str, narrow: bool = False) -> Markup:
    """Return one bar for each kind of step. Its length is the whole width; its parts are shares of the step."""
    width = NARROW_WIDTH if narrow else WIDTH
    drawn: list[Markup] = []
    for number, bar in enumerate(bars):
        top = number * (HEADING + BAR + 14)
        drawn.append(text_at(_bar_title(bar), MARGIN, top + 13, "strong"))
        drawn += _bar(bar, top + HEADING, width)
    about = "; ".join(
        f"{bar.name}: " + ", ".join(f"{name} {us / bar.us:.0%}" for name, us in bar.parts) for bar in bars
    )
    height = len(bars) * (HEADING + BAR + 14)
    return _svg(key, "Time of a step by category", about, (width, height), drawn)


def _bar_title(bar: StepBar) -> str:
    name = f"{bar.name} " if bar.name else ""
    return f"{name}{bar.us / 1e3:.3f} ms" + (f", mean of {bar.count}" if bar.count > 1 else "")


def _bar(bar: StepBar, top: float, width: float) -> Iterator[Markup]:
    x, scale = MARGIN, (width - 2 * MARGIN) / max(bar.us, 1e-9)
    for name, us in bar.parts:
        length = us * scale
        told = element("title", f"{name}: {us / 1e3:.3f} ms, {us / bar.us:.1%}")
        yield element("rect", told, kind=f"part {_kind(name)}", x=x, y=top, width=length, height=BAR)
        label = f"{name} {us / bar.us:.0%}"
        if length >= max(LEAST_LABELLED, 7.0 * len(label)):
            yield text_at(label, x + 6, top + 17, f"on {_kind(name)}")
        x += length


def timeline_plot(timeline: Timeline, key: str, narrow: bool = False) -> Markup:
    """Return the lanes of a step over its time, with the idle times of the GPU in a lane of their own."""
    width = NARROW_WIDTH if narrow else WIDTH
    scale = (width - 2 * MARGIN) / max(timeline.duration_us, 1e-9)

    def at(time: float) -> float:
        return MARGIN + (min(max(time, timeline.start_us), timeline.end_us) - timeline.start_us) * scale

    drawn: list[Markup] = []
    top = 0.0
    for lane in timeline.lanes:
        drawn.append(text_at(f"GPU {lane.device}, stream {lane.stream}", MARGIN, top + 12, "tick"))
        for box in lane.boxes:
            left, right = at(box.start_us), at(box.end_us)
            told = element("title", box.about)
            place = {"x": left, "y": top + HEADING, "width": max(right - left, 0.4), "height": LANE}
            drawn.append(element("rect", told, kind=f"part {_kind(box.category)}", **place))
        top += HEADING + LANE + LANE_GAP
    drawn.append(text_at("idle", MARGIN, top + 12, "tick"))
    for gap in timeline.gaps:
        left, right = at(gap.start_us), at(gap.end_us)
        if right - left >= 0.2:
            place = {"x": left, "y": top + HEADING, "width": right - left, "height": LANE}
            drawn.append(element("rect", element("title", gap_words(gap)), kind="part idle", **place))
    top += HEADING + LANE + LANE_GAP
    drawn += _axis(timeline.duration_us, scale, top, narrow)
    idle = sum(gap.duration_us for gap in timeline.gaps)
    about = f"{timeline.duration_us / 1e3:.3f} ms, of which the GPU is idle {idle / 1e3:.3f} ms."
    return _svg(key, f"Timeline of {timeline.name}", about, (width, top + AXIS), drawn)


def gap_words(gap: Gap) -> str:
    """Return the length of a gap and the event that ended it, in words."""
    launch = gap.next.launch
    op = launch.stack.outermost_op if launch else None
    by = f", launched by {op.name}" if op else ""
    host = f"; the host had not launched it for {gap.waited_us / 1e3:.3f} ms of that" if gap.waited_us else ""
    return f"idle {gap.duration_us / 1e3:.3f} ms until {short_name(gap.next.name)}{by}{host}"


def _axis(duration: float, scale: float, top: float, narrow: bool) -> Iterator[Markup]:
    step = _tick_step(duration, MOST_TICKS[narrow])
    for number in range(int(duration / step) + 1):
        x = MARGIN + number * step * scale
        yield element("line", kind="grid", x1=x, x2=x, y1=top, y2=top + 5)
        anchor = "start" if number == 0 else "end" if x > (NARROW_WIDTH if narrow else WIDTH) - 40 else "middle"
        yield text_at(f"{number * step / 1e3:g} ms", x, top + 18, "tick", anchor=anchor)


def _tick_step(duration: float, most: int) -> float:
    """Return the smallest step with at most so many ticks: 1, 2 or 5 times a power of ten."""
    least = max(duration, 1e-3) / most
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def _kind(category: str) -> str:
    return f"of-{category.lower()}" if category != IDLE else IDLE


def _svg(key: str, title: str, about: str, size: tuple[float, float], parts: Sequence[Markup]) -> Markup:
    head = element("title", title, id=f"{key}-title"), element("desc", about, id=f"{key}-about")
    named = f"{key}-title {key}-about"
    box = f"0 0 {size[0]:.0f} {size[1]:.0f}"
    return element("svg", *head, *parts, kind="plot", viewBox=box, role="img", aria_labelledby=named)
