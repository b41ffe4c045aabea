"""RowPlot: rows one below the other, and on each a mark for every name of a legend, as an SVG that stands by itself.

A page in Markdown shows it as an image, so it brings its own style, for a light and for a dark reader. Marks differ in
shape and in colour. Who has no figure on a row has no mark there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kernwright.judge.record.verdict import MetricResult
from kernwright.report.verdict_plots import (
    AXIS_HEIGHT,
    CHARACTER_WIDTH,
    SHARE_LIMIT,
    WIDTH,
    Frame,
    element,
    speedup_scale,
    text_at,
)

MARKS = (
    "M0,-5.5 L5.5,0 L0,5.5 L-5.5,0 Z",
    "M-4.5,0 A4.5,4.5 0 1 0 4.5,0 A4.5,4.5 0 1 0 -4.5,0 Z",
    "M-5,4.5 H5 L0,-5.5 Z",
    "M-4.2,-4.2 H4.2 V4.2 H-4.2 Z",
    "M-5,-4.5 H5 L0,5.5 Z",
)
LEGEND_HEIGHT = 24.0
ROW_HEIGHT = 20.0
LONGEST_LABEL = 46
LEAST_GAP = 40.0  # between the labels of an axis
STYLE = """
.plot { background: #ffffff; font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
text { fill: #24292f; } .tick { fill: #57606a; } .stripe { fill: #f6f8fa; } .clear { fill: #ffffff; }
.grid { stroke: #d0d7de; } .unity { stroke: #57606a; stroke-width: 1.5; } .whisker { stroke-width: 1.4; fill: none; }
.c0 { fill: #0969da; stroke: #0969da; } .c1 { fill: #bc4c00; stroke: #bc4c00; } .c2 { fill: #1a7f37; stroke: #1a7f37; }
.c3 { fill: #8250df; stroke: #8250df; } .c4 { fill: #9a6700; stroke: #9a6700; }
@media (prefers-color-scheme: dark) {
.plot { background: #0d1117; } text { fill: #e6edf3; } .tick { fill: #8d96a0; } .stripe { fill: #161b22; }
.clear { fill: #0d1117; } .grid { stroke: #30363d; } .unity { stroke: #8d96a0; }
.c0 { fill: #58a6ff; stroke: #58a6ff; } .c1 { fill: #f0883e; stroke: #f0883e; } .c2 { fill: #3fb950; stroke: #3fb950; }
.c3 { fill: #bc8cff; stroke: #bc8cff; } .c4 { fill: #d29922; stroke: #d29922; }
}
"""


@dataclass(frozen=True)
class Mark:
    """Where it stands on the axis, what it says when it is pointed at, and how far an interval reaches around it."""

    x: float
    told: str
    reach: tuple[float, float] | None = None


Marked = Callable[[str, str], Mark | None]  # of a row, of a name
Ticks = Sequence[tuple[float, str, bool]]


def ratio_plot(
    rows: Sequence[str], names: Sequence[str], found: Callable[[str, str], tuple[MetricResult, str] | None], title: str
) -> str:
    """Ratios with intervals, on an axis that has 1 in it. `found`: a row's result for a name, and words on it."""
    results = [own[0] for row in rows for name in names if (own := found(row, name))]
    frame = _frame(rows)
    scale = speedup_scale(results, frame.left, frame.right)

    def marked(row: str, name: str) -> Mark | None:
        if (own := found(row, name)) is None:
            return None
        low, high = (scale.at(bound) for bound in own[0].interval)
        return Mark(scale.at(own[0].ratio), own[1], (low, high))

    ticks = [(scale.at(tick), f"{tick:g}x", tick == 1) for tick in scale.ticks()]
    return _plot(rows, names, frame, ticks, marked, title)


def share_plot(rows: Sequence[str], names: Sequence[str], found: Callable[[str, str], float | None], title: str) -> str:
    """Shares of a copy: what a copy of the row's fewest bytes takes, over what was measured. 100 % is memory's own."""
    frame = _frame(rows)
    shares = [share for row in rows for name in names if (share := found(row, name))]
    limit = max([1.1, *(min(share, SHARE_LIMIT) for share in shares)])

    def marked(row: str, name: str) -> Mark | None:
        share = found(row, name)
        return Mark(frame.part(min(share, limit) / limit), f"{share:.0%} of a copy") if share else None

    steps = (n / 4 for n in range(int(limit * 4) + 1))
    ticks = [(frame.part(tick / limit), f"{tick:.0%}", tick == 1) for tick in steps]
    return _plot(rows, names, frame, ticks, marked, title)


def _frame(rows: Sequence[str]) -> Frame:
    longest = max((min(len(row), LONGEST_LABEL) for row in rows), default=0)
    return Frame(len(rows), ROW_HEIGHT, 20 + longest * CHARACTER_WIDTH, WIDTH - 30)


def _plot(rows: Sequence[str], names: Sequence[str], frame: Frame, ticks: Ticks, marked: Marked, title: str) -> str:
    parts = [frame.axis(_apart(ticks))]
    for index, row in enumerate(rows):
        middle = frame.middle(index)
        label = row if len(row) <= LONGEST_LABEL else f"{row[: LONGEST_LABEL - 1]}…"
        parts.append(text_at(label, 6.0, middle + 4, "row", hover=row))
        for number, name in enumerate(names):
            mark = marked(row, name)
            if mark is not None:
                hover = element("title", f"{row}, {name}: {mark.told}")
                drawn = [*_whisker(mark, middle), _shape(number, mark.x, middle)]
                parts.append(element("g", hover, *drawn, kind=f"c{number % len(MARKS)}"))
    height = frame.top(frame.rows) + AXIS_HEIGHT + LEGEND_HEIGHT
    box = f"0 {-LEGEND_HEIGHT:.0f} {WIDTH:.0f} {height:.0f}"
    body = Markup("").join([element("title", title), element("style", Markup(STYLE)), _legend(names), *parts])
    drawing = element(
        "svg", body, kind="plot", xmlns="http://www.w3.org/2000/svg", viewBox=box, width=f"{WIDTH:.0f}",
        height=f"{height:.0f}", role="img",
    )  # fmt: skip
    return f"{drawing}\n"


def _apart(ticks: Ticks) -> list[tuple[float, str, bool]]:
    """Without those whose labels would touch the one before."""
    kept: list[tuple[float, str, bool]] = []
    for tick in ticks:
        if not kept or tick[0] - kept[-1][0] >= LEAST_GAP:
            kept.append(tick)
    return kept


def _legend(names: Iterable[str]) -> Markup:
    parts, x = [], 14.0
    for number, name in enumerate(names):
        words = text_at(name, x + 10, -8.0, "row")
        parts += [element("g", _shape(number, x, -12.0), kind=f"c{number % len(MARKS)}"), words]
        x += 34 + len(name) * CHARACTER_WIDTH
    return Markup("").join(parts)


def _whisker(mark: Mark, y: float) -> list[Markup]:
    if mark.reach is None:
        return []
    return [element("line", kind="whisker", x1=mark.reach[0], x2=mark.reach[1], y1=y, y2=y)]


def _shape(number: int, x: float, y: float) -> Markup:
    return element("path", kind="marker", d=MARKS[number % len(MARKS)], transform=f"translate({x:.2f},{y:.2f})")
