"""Plots of a verdict's rows, drawn as inline SVG.

Colours and fonts belong to the page's style sheet, so that a plot follows the reader's light or dark theme; a plot says
only what each shape is. No row is dropped: one that cannot be drawn is listed in its place, with the reason.
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

# Each outcome has a shape of its own, centred on its value: colour alone says nothing to some readers and printers.
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
AXIS_HEIGHT = 26.0
VALUE_WIDTH = 196.0
LABEL_CHARACTERS = 42  # a longer row id is shortened in the plot; the table beside it has all of it
CHARACTER_WIDTH = 7.1  # of the page's fixed-width font at the plots' size
TICK_GAP = 46.0  # closer tick labels would run into each other
ROUND_STEPS = ((1,), (1, 2, 5), (1, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8))
REACH = (
    4.0  # how far past the outermost ratio an interval may stretch the axis: an unbounded one would flatten the rest
)
SHARE_LIMIT = 2.0  # bars longer than this are cut, and marked: one small row in a cache would flatten the rest


@dataclass(frozen=True)
class LogScale:
    """Where a ratio stands on a logarithmic axis."""

    low: float
    high: float
    left: float
    right: float

    def at(self, ratio: float) -> float:
        """The ratio's coordinate; beyond the axis, that of the axis' end."""
        if ratio <= self.low:
            return self.left
        if ratio >= self.high:
            return self.right
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return self.left + share * (self.right - self.left)

    def ticks(self) -> list[float]:
        """The finest of some round spacings whose labels still stand apart; 1 is a tick of every one."""
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


def speedup_plot(rows: Sequence[RowVerdict], decides: Metric, key: str) -> Markup:
    """A dot and a whisker a row, over the noise band around 1 that the whisker has to clear."""
    frame = Frame.around(rows, row_height=24.0 if len(rows) <= 60 else 19.0)
    results = [deciding_result(row, decides) for row in rows]
    scale = speedup_scale([result for result in results if result], frame.left, frame.right)
    parts = [frame.axis([(scale.at(tick), f"{tick:g}×", tick == 1) for tick in scale.ticks()])]
    for index, (row, result) in enumerate(zip(rows, results, strict=True)):
        drawn = _whisker(row, result, scale, frame, index) if result else _untimed(row, decides, frame, index)
        parts += [frame.label(row, index), drawn]
    counts = Counter(row.verdict for row in rows)
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]) or "no rows"
    about = f"Logarithmic axis from {scale.low:.2g} to {scale.high:.2g}, with intervals and noise bands: {told}."
    return frame.svg(key, f"Speedup per row, {decides} time", about, parts)


def bandwidth_plot(rows: Sequence[RowVerdict], decides: Metric, key: str) -> Markup:
    """Both sides of a row against a plain copy of its fewest bytes, measured in the same run."""
    frame = Frame.around(rows, row_height=36.0 if len(rows) <= 60 else 30.0)
    pairs = [copy_shares(row, decides) for row in rows]
    longest = max((share for pair in pairs if pair for share in pair), default=1.0)
    limit = min(max(1.0, math.ceil(longest * 10) / 10), SHARE_LIMIT)
    ticks = [quarter / 4 for quarter in range(int(limit * 4) + 1)]
    parts = [frame.axis([(frame.part(tick / limit), f"{100 * tick:.0f} %", tick == 1) for tick in ticks])]
    for index, (row, pair) in enumerate(zip(rows, pairs, strict=True)):
        drawn = _bars(row, pair, limit, frame, index) if pair else _untimed(row, decides, frame, index)
        parts += [frame.label(row, index), drawn]
    about = "Two bars a row, candidate above baseline; 100 % is a copy of the same size."
    return frame.svg(key, f"Share of a plain copy's bandwidth per row, {decides} time", about, parts)


def deciding_result(row: RowVerdict, decides: Metric) -> MetricResult | None:
    """The row's figures where they can be drawn at all."""
    result = row.metrics.get(decides)
    return result if isinstance(result, MetricResult) and 0 < result.ratio < math.inf else None


def copy_shares(row: RowVerdict, decides: Metric) -> tuple[float, float] | None:
    """Candidate's and baseline's bandwidth over the copy's; all move the same bytes, so the times alone say it."""
    result = deciding_result(row, decides)
    if result is None or not row.fastest_copy_us or min(result.candidate_us, result.baseline_us) <= 0:
        return None
    return row.fastest_copy_us / result.candidate_us, row.fastest_copy_us / result.baseline_us


@dataclass(frozen=True)
class Frame:
    """What both plots share: row labels on the left, a track with an axis above and below it, figures on the right."""

    rows: int
    row_height: float
    left: float
    right: float = WIDTH - VALUE_WIDTH

    @classmethod
    def around(cls, rows: Sequence[RowVerdict], row_height: float) -> Frame:
        longest = max((min(len(row.id), LABEL_CHARACTERS) for row in rows), default=0)
        return cls(len(rows), row_height, 20 + longest * CHARACTER_WIDTH)

    def part(self, share: float) -> float:
        return self.left + share * (self.right - self.left)

    def top(self, index: int) -> float:
        return AXIS_HEIGHT + index * self.row_height

    def middle(self, index: int) -> float:
        return self.top(index) + self.row_height / 2

    def ground(self, index: int, left: float = 0.0) -> Markup:
        """A row's background; drawn again from ``left`` on, it keeps the axis' lines from crossing words."""
        kind = "clear" if index % 2 else "stripe"
        return element("rect", kind=kind, x=left, y=self.top(index), width=WIDTH - left, height=self.row_height)

    def axis(self, ticks: Iterable[tuple[float, str, bool]]) -> Markup:
        """The rows' backgrounds and, over them, the axis."""
        parts = [self.ground(index) for index in range(self.rows)]
        bottom = self.top(self.rows)
        for x, label, is_unity in ticks:
            parts.append(element("line", kind="unity" if is_unity else "grid", x1=x, x2=x, y1=AXIS_HEIGHT, y2=bottom))
            parts += [text_at(label, x, y, "tick", anchor="middle") for y in (AXIS_HEIGHT - 8, bottom + 17)]
        return Markup("").join(parts)

    def label(self, row: RowVerdict, index: int) -> Markup:
        half = LABEL_CHARACTERS // 2
        short = row.id if len(row.id) <= LABEL_CHARACTERS else f"{row.id[: half - 1]}…{row.id[-half:]}"
        return text_at(short, 6.0, self.middle(index) + 4, "row", hover=f"{row.id}: {row.verdict}")

    def svg(self, key: str, title: str, about: str, parts: Iterable[Markup]) -> Markup:
        head = element("title", title, id=f"{key}-title"), element("desc", about, id=f"{key}-about")
        box = f"0 0 {WIDTH:.0f} {self.top(self.rows) + AXIS_HEIGHT:.0f}"
        named = f"{key}-title {key}-about"
        return element("svg", *head, *parts, kind="plot", viewBox=box, role="img", aria_labelledby=named)


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
    drawn = (
        element("title", f"{row.id}: {row.verdict}, {shown[0]}, interval {shown[1]}"),
        element("rect", kind="noise", x=quiet, y=frame.top(index), width=loud - quiet, height=frame.row_height),
        element("line", kind="whisker", x1=start, x2=end, y1=middle, y2=middle, data_row=row.id),
        element("path", kind="whisker", d=caps),
        _marker(row.verdict, scale.at(result.ratio), middle),
        text_at(shown[0], WIDTH - 118, middle + 4, "value strong", anchor="end"),
        text_at(shown[1], WIDTH - 4, middle + 4, "value", anchor="end"),
    )
    return element("g", *drawn, kind=f"outcome-{row.verdict}")


def _bars(row: RowVerdict, shares: tuple[float, float], limit: float, frame: Frame, index: int) -> Markup:
    parts: list[Markup] = []
    middle, height = frame.middle(index), frame.row_height / 3.2
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
        for value, x in zip(shown, (WIDTH - 90, WIDTH - 4), strict=True):
            parts.append(text_at(value, x, top + height - 1.5, f"value {side}", anchor="end"))
    return Markup("").join(parts)


def _untimed(row: RowVerdict, decides: Metric, frame: Frame, index: int) -> Markup:
    middle, timed = frame.middle(index), deciding_result(row, decides) is not None
    why = "no copy was measured beside it" if timed else row.reasons[0] if row.reasons else "not timed"
    room = int((WIDTH - frame.left - 30) / CHARACTER_WIDTH) - len(row.verdict)
    told = why if len(why) <= room else f"{why[: room - 1]}…"
    words = Markup("{}: {}").format(element("tspan", row.verdict, kind="strong"), plain(told, newlines=True))
    place = _marker(row.verdict, frame.left + 10, middle)
    text = text_at(words, frame.left + 24, middle + 4, "untimed", hover=why)
    return element("g", frame.ground(index, frame.left), place, text, kind=f"outcome-{row.verdict}")


def _marker(outcome: Outcome, x: float, y: float) -> Markup:
    return element("path", kind="marker", d=SHAPES[outcome], transform=f"translate({x:.2f},{y:.2f})")


def text_at(words: str, x: float, y: float, kind: str, anchor: str = "start", hover: str = "") -> Markup:
    return element(
        "text", *([element("title", hover)] if hover else []), words, kind=kind, x=x, y=y, text_anchor=anchor
    )


def element(tag: str, *children: str, kind: str = "", **attributes: str | float) -> Markup:
    """One element of a class, its words escaped; numbers in hundredths, so that equal plots are equal bytes."""
    named = ({"class": kind} if kind else {}) | {name.replace("_", "-"): value for name, value in attributes.items()}
    given = "".join(
        f' {name}="{value:.2f}"' if isinstance(value, float) else f' {name}="{escape(plain(value, newlines=True))}"'
        for name, value in named.items()
    )
    inner = "".join(child if isinstance(child, Markup) else escape(plain(child, newlines=True)) for child in children)
    return Markup(f"<{tag}{given}>{inner}</{tag}>" if inner else f"<{tag}{given}/>")


def magnitude(value: float) -> str:
    """A positive figure to about four places, so that columns of times and ratios line up."""
    if not math.isfinite(value):
        return "not finite"
    if value != 0 and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.2e}"
    places = next((places for bound, places in ((0.1, 4), (10, 3), (100, 2), (1000, 1)) if abs(value) < bound), 0)
    return f"{value:,.{places}f}"


def interval_text(interval: tuple[float, float] | None) -> str:
    """Both ends; the judge writes an interval that it could not bound as one from 0, or to a thousand million.

    A quick run's headline has none.
    """
    if interval is None:
        return "coarse"
    low, high = interval
    return "unbounded" if low <= 0 or not high < 1e9 else f"{magnitude(low)} – {magnitude(high)}"
