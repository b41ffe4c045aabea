"""Plots of a verdict's rows, drawn as inline SVG.

Colours and fonts are those of the page's style sheet, so that a plot follows the reader's light or dark theme. A plot
has the rows with a time; the table of the page has all rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

from markupsafe import Markup, escape

from kernwright.core.plain_text import plain
from kernwright.judge.record.verdict import MetricResult, Outcome, RowVerdict
from kernwright.tasks.policy import Metric

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

# Each outcome has its own shape, because some readers and printers cannot tell the colours apart.
SHAPES: dict[Outcome, str] = {
    "faster": "M-3,-5 L6,0 L-3,5 Z",
    "same": "M-4.5,0 A4.5,4.5 0 1 0 4.5,0 A4.5,4.5 0 1 0 -4.5,0 Z",
    "slower": "M3,-5 L-6,0 L3,5 Z",
    "inconclusive": "M0,-5.5 L5.5,0 L0,5.5 L-5.5,0 Z",
    "incorrect": "M-4,-4 L4,4 M-4,4 L4,-4",
    "tampered": "M-4.5,-4.5 H4.5 V4.5 H-4.5 Z",
    "failed": "M-5,-3.5 H5 L0,5.5 Z",
}

WIDTH = 1000.0
NARROW_WIDTH = 360.0  # fits a phone
HEADING = 20.0  # height of a label above its track
AXIS_HEIGHT = 26.0
CAPTION_HEIGHT = 20.0
VALUE_WIDTH = 196.0
LABEL_CHARACTERS = 42  # a longer row id is shortened in the plot; the table beside it has all of it
CHARACTER_WIDTH = 7.1  # width of a character in the page's fixed-width font, at the plots' size
TICK_GAP = 46.0  # closer tick labels would run into each other
ROUND_STEPS = ((1,), (1, 2, 5), (1, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8))
REACH = (
    4.0  # how far past the outermost ratio an interval may stretch the axis: an unbounded one would flatten the rest
)
SHARE_LIMIT = 2.0  # bars longer than this are cut, and marked: one small row in a cache would flatten the rest


@dataclass(frozen=True)
class LogScale:
    """A logarithmic axis."""

    low: float
    high: float
    left: float
    right: float

    def at(self, ratio: float) -> float:
        """Return the coordinate of a ratio. Beyond the axis it is that of the end of the axis."""
        if ratio <= self.low:
            return self.left
        if ratio >= self.high:
            return self.right
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return self.left + share * (self.right - self.left)

    def ticks(self) -> list[float]:
        """Return the ticks with the finest of some round spacings at which labels do not touch. 1 is always a tick."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        spacings = [[step * 10.0**decade for decade in decades for step in steps] for steps in ROUND_STEPS]
        spacings += [_multiples(step, self.low, self.high) for step in (0.5, 0.25, 0.1, 0.05, 0.02)]
        best: list[float] = [1.0]
        for spacing in spacings:
            inside = [tick for tick in spacing if self.low <= tick <= self.high]
            places = [self.at(tick) for tick in inside]
            apart = all(after - before >= TICK_GAP for before, after in pairwise(places))
            if apart and len(inside) > len(best):
                best = inside
        return best


def _multiples(step: float, low: float, high: float) -> list[float]:
    if (high - low) / step > 100:  # far too close on any axis
        return []
    return [round(count * step, 4) for count in range(max(1, math.ceil(low / step)), math.floor(high / step) + 1)]


def speedup_scale(results: Sequence[MetricResult], left: float, right: float) -> LogScale:
    """Return an axis with 1, every ratio, and every interval and noise band of a sensible width."""
    ends = [end for result in results for end in (*result.interval, 1 / (1 + result.noise_band), 1 + result.noise_band)]
    return ratio_scale([result.ratio for result in results], ends, left, right)


def ratio_scale(ratios: Sequence[float], ends: Sequence[float], left: float, right: float) -> LogScale:
    """Return an axis with 1 and every ratio. Ends of intervals extend it to REACH times the outermost ratio at most."""
    known = [1.0, *ratios]
    least, most = min(known) / REACH, max(known) * REACH
    held = [*known, 1 / 1.1, 1.1, *(min(max(end, least), most) for end in ends)]
    margin = (max(held) / min(held)) ** 0.04
    return LogScale(min(held) / margin, max(held) * margin, left, right)


def speedup_plot(rows: Sequence[RowVerdict], decides: Metric, key: str, narrow: bool = False) -> Markup:
    """Return a plot with a dot and a whisker per timed row, over the noise band around 1."""
    timed = [(row, result) for row in rows if (result := deciding_result(row, decides))]
    frame = Frame.around([row for row, _ in timed], 24.0 if len(timed) <= 60 else 19.0, narrow)
    scale = speedup_scale([result for _, result in timed], frame.left, frame.right)
    parts = [frame.axis([(scale.at(tick), f"{tick:g}×", tick == 1) for tick in scale.ticks()])]
    for index, (row, result) in enumerate(timed):
        parts += [frame.label(row, index), _whisker(row, result, scale, frame, index)]
    counts = Counter(row.verdict for row, _ in timed)
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]) or "no rows"
    about = f"Logarithmic axis from {scale.low:.2g} to {scale.high:.2g}, with intervals and noise bands: {told}."
    caption = "baseline time / candidate time, logarithmic"
    return frame.svg(key, f"Speedup per row, {decides} time", about, caption, parts)


def bandwidth_plot(rows: Sequence[RowVerdict], decides: Metric, key: str, narrow: bool = False) -> Markup:
    """Return a plot with two bars per timed row: both sides against a plain copy of the row's fewest bytes."""
    timed = [(row, shares) for row in rows if (shares := copy_shares(row, decides))]
    frame = Frame.around([row for row, _ in timed], 36.0 if len(timed) <= 60 else 30.0, narrow)
    longest = max((share for _, pair in timed for share in pair), default=1.0)
    limit = min(max(1.0, math.ceil(longest * 10) / 10), SHARE_LIMIT)
    ticks = [quarter / 4 for quarter in range(int(limit * 4) + 1)]
    parts = [frame.axis([(frame.part(tick / limit), f"{100 * tick:.0f} %", tick == 1) for tick in ticks])]
    for index, (row, pair) in enumerate(timed):
        parts += [frame.label(row, index), _bars(row, pair, limit, frame, index)]
    about = "Two bars per row, the candidate above the baseline; 100 % is a copy of the same size."
    caption = "time of a copy of the same bytes / time of the call"
    return frame.svg(key, f"Share of a copy's speed per row, {decides} time", about, caption, parts)


def deciding_result(row: RowVerdict, decides: Metric) -> MetricResult | None:
    """Return the row's figures if they can be drawn."""
    result = row.metrics.get(decides)
    return result if isinstance(result, MetricResult) and 0 < result.ratio < math.inf else None


def copy_shares(row: RowVerdict, decides: Metric) -> tuple[float, float] | None:
    """Return candidate's and baseline's bandwidth over the copy's. All move the same bytes, so the ratios of times
    suffice."""
    result = deciding_result(row, decides)
    if result is None or not row.fastest_copy_us or min(result.candidate_us, result.baseline_us) <= 0:
        return None
    return row.fastest_copy_us / result.candidate_us, row.fastest_copy_us / result.baseline_us


@dataclass(frozen=True)
class Frame:
    """The layout of a plot: row labels, a track with an axis above and below it, and figures on the right.

    In a narrow frame, which fits a phone, the label of a row is above its track.
    """

    rows: int
    row_height: float
    left: float
    right: float = WIDTH - VALUE_WIDTH
    width: float = WIDTH
    heading: float = 0.0  # height of the label above the track; 0 if it is beside the track

    @classmethod
    def around(cls, rows: Sequence[RowVerdict], row_height: float, narrow: bool = False) -> Frame:
        if narrow:
            return cls(
                rows=len(rows), row_height=row_height + HEADING, left=12.0, right=NARROW_WIDTH - 62,
                width=NARROW_WIDTH, heading=HEADING,
            )  # fmt: skip
        longest = max((min(len(row.id), LABEL_CHARACTERS) for row in rows), default=0)
        return cls(rows=len(rows), row_height=row_height, left=20 + longest * CHARACTER_WIDTH)

    @property
    def is_narrow(self) -> bool:
        return self.heading > 0

    def part(self, share: float) -> float:
        return self.left + share * (self.right - self.left)

    def top(self, index: int) -> float:
        return AXIS_HEIGHT + index * self.row_height

    def track(self, index: int) -> float:
        """Return the upper edge of a row's track."""
        return self.top(index) + self.heading

    def middle(self, index: int) -> float:
        return self.track(index) + (self.row_height - self.heading) / 2

    def ground(self, index: int, height: float | None = None) -> Markup:
        """Return the background of a row or, with a height, of its heading, which hides the lines of the axis."""
        kind = "clear" if index % 2 else "stripe"
        box = {"y": self.top(index), "width": self.width, "height": height or self.row_height}
        return element("rect", kind=kind, x=0.0, **box)

    def axis(self, ticks: Iterable[tuple[float, str, bool]]) -> Markup:
        """Return the backgrounds of the rows and, over them, the axis."""
        parts = [self.ground(index) for index in range(self.rows)]
        bottom = self.top(self.rows)
        for x, label, is_unity in ticks:
            parts.append(element("line", kind="unity" if is_unity else "grid", x1=x, x2=x, y1=AXIS_HEIGHT, y2=bottom))
            parts += [text_at(label, x, y, "tick", anchor="middle") for y in (AXIS_HEIGHT - 8, bottom + 17)]
        return Markup("").join(parts)

    def label(self, row: RowVerdict, index: int) -> Markup:
        half = LABEL_CHARACTERS // 2
        short = row.id if len(row.id) <= LABEL_CHARACTERS else f"{row.id[: half - 1]}…{row.id[-half:]}"
        y = self.top(index) + 15 if self.is_narrow else self.middle(index) + 4
        text = text_at(short, 6.0, y, "row", hover=f"{row.id}: {row.verdict}")
        return Markup("").join([self.ground(index, self.heading), text]) if self.is_narrow else text

    def values(self, shown: Sequence[str], y: float, kinds: Sequence[str]) -> list[Markup]:
        """Return the figures on the right of a row. A narrow frame has room for the first one."""
        places = (self.width - 4,) if self.is_narrow else (self.width - 118, self.width - 4)
        return [text_at(value, x, y, kind, anchor="end") for value, x, kind in zip(shown, places, kinds, strict=False)]

    def svg(self, key: str, title: str, about: str, caption: str, parts: Iterable[Markup]) -> Markup:
        head = element("title", title, id=f"{key}-title"), element("desc", about, id=f"{key}-about")
        bottom = self.top(self.rows) + AXIS_HEIGHT
        drawn = text_at(caption, (self.left + self.right) / 2, bottom + 10, "caption", anchor="middle")
        box = f"0 0 {self.width:.0f} {bottom + CAPTION_HEIGHT:.0f}"
        named = f"{key}-title {key}-about"
        kind = "plot narrow" if self.is_narrow else "plot"
        return element("svg", *head, *parts, drawn, kind=kind, viewBox=box, role="img", aria_labelledby=named)


def _whisker(row: RowVerdict, result: MetricResult, scale: LogScale, frame: Frame, index: int) -> Markup:
    middle, (low, high) = frame.middle(index), result.interval
    start, end = scale.at(low), scale.at(high)
    quiet, loud = scale.at(1 / (1 + result.noise_band)), scale.at(1 + result.noise_band)
    # A whisker cut off by the end of the axis would look finite: it gets an arrow there instead of a cap.
    inward = 3.0 if low < scale.low else 0.0, -3.0 if high > scale.high else 0.0
    caps = " ".join(
        f"M{x + arrow:.2f},{middle - 4:.2f} L{x:.2f},{middle:.2f} L{x + arrow:.2f},{middle + 4:.2f}"
        for x, arrow in zip((start, end), inward, strict=True)
    )
    shown = f"{magnitude(result.ratio)}×", interval_text(result.interval)
    band = {"y": frame.track(index), "height": frame.row_height - frame.heading}
    drawn = (
        element("title", f"{row.id}: {row.verdict}, {shown[0]}, interval {shown[1]}"),
        element("rect", kind="noise", x=quiet, width=loud - quiet, **band),
        element("line", kind="whisker", x1=start, x2=end, y1=middle, y2=middle, data_row=row.id),
        element("path", kind="whisker", d=caps),
        _marker(row.verdict, scale.at(result.ratio), middle),
        *frame.values(shown, middle + 4, ("value strong", "value")),
    )
    return element("g", *drawn, kind=f"outcome-{row.verdict}")


def _bars(row: RowVerdict, shares: tuple[float, float], limit: float, frame: Frame, index: int) -> Markup:
    parts: list[Markup] = []
    middle, height = frame.middle(index), (frame.row_height - frame.heading) / 3.2
    tops = middle - height - 0.5, middle + 0.5
    copied = row.bytes_min / (row.fastest_copy_us or math.inf) / 1e3
    for side, share, top in zip(("candidate", "baseline"), shares, tops, strict=True):
        length = frame.part(min(share, limit) / limit) - frame.left
        shown = f"{100 * share:.{1 if share < 10 else 0}f} %", f"{magnitude(share * copied)} GB/s"
        told = element("title", f"{row.id}, {side}: {shown[0]} of a copy, {shown[1]}")
        box = {"x": frame.left, "y": top, "width": length, "height": height}
        parts.append(element("rect", told, kind=f"bar {side}", data_row=row.id, **box))
        if share > limit:
            parts.append(text_at("»", frame.right + 3, top + height - 1, "cut"))
        parts += frame.values(shown, top + height - 1.5, (f"value {side}",) * 2)
    return Markup("").join(parts)


def _marker(outcome: Outcome, x: float, y: float) -> Markup:
    return element("path", kind="marker", d=SHAPES[outcome], transform=f"translate({x:.2f},{y:.2f})")


def text_at(words: str, x: float, y: float, kind: str, anchor: str = "start", hover: str = "") -> Markup:
    return element(
        "text", *([element("title", hover)] if hover else []), words, kind=kind, x=x, y=y, text_anchor=anchor
    )


def element(tag: str, *children: str, kind: str = "", **attributes: str | float) -> Markup:
    """Return an element of a class with escaped text. Numbers have two decimals, so that equal plots have equal
    bytes."""
    named = ({"class": kind} if kind else {}) | {name.replace("_", "-"): value for name, value in attributes.items()}
    given = "".join(
        f' {name}="{value:.2f}"' if isinstance(value, float) else f' {name}="{escape(plain(value, newlines=True))}"'
        for name, value in named.items()
    )
    inner = "".join(child if isinstance(child, Markup) else escape(plain(child, newlines=True)) for child in children)
    return Markup(f"<{tag}{given}>{inner}</{tag}>" if inner else f"<{tag}{given}/>")


def magnitude(value: float) -> str:
    """Return a positive figure with about four significant digits, so that columns of times and ratios align."""
    if not math.isfinite(value):
        return "not finite"
    if value != 0 and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.2e}"
    places = next((places for bound, places in ((0.1, 4), (10, 3), (100, 2), (1000, 1)) if abs(value) < bound), 0)
    return f"{value:,.{places}f}"


def interval_text(interval: tuple[float, float] | None) -> str:
    """Return both ends of an interval. The judge writes an unbounded one from 0, or to a thousand million.

    A quick run's headline has none.
    """
    if interval is None:
        return "coarse"
    low, high = interval
    return "unbounded" if low <= 0 or not high < 1e9 else f"{magnitude(low)} – {magnitude(high)}"
