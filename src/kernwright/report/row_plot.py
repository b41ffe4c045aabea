"""RowPlot: rows below each other with one mark per name of a legend, as a standalone SVG image.

A Markdown page shows the plot as an image, so the plot carries its own style for light and dark themes, its title and
the caption of its axis. Marks differ in shape and in colour. A name without a figure on a row has no mark there.
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
    LogScale,
    element,
    ratio_scale,
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
TITLE_HEIGHT = 26.0
LEGEND_HEIGHT = 24.0
CAPTION_HEIGHT = 20.0
ROW_HEIGHT = 20.0
LEAST_GAP = 40.0  # between the labels of an axis
STYLE = """
.plot { background: #ffffff; font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
text { fill: #24292f; } .title { font: 600 14px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
.caption { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
.tick, .caption { fill: #57606a; } .stripe { fill: #f6f8fa; } .clear { fill: #ffffff; }
.grid { stroke: #d0d7de; } .unity { stroke: #57606a; stroke-width: 1.5; } .whisker { stroke-width: 1.4; fill: none; }
.c0 { fill: #0969da; stroke: #0969da; } .c1 { fill: #bc4c00; stroke: #bc4c00; } .c2 { fill: #1a7f37; stroke: #1a7f37; }
.c3 { fill: #8250df; stroke: #8250df; } .c4 { fill: #9a6700; stroke: #9a6700; }
.part .marker { fill-opacity: 0; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
.plot { background: #0d1117; } text { fill: #e6edf3; } .tick, .caption { fill: #8d96a0; } .stripe { fill: #161b22; }
.clear { fill: #0d1117; } .grid { stroke: #30363d; } .unity { stroke: #8d96a0; }
.c0 { fill: #58a6ff; stroke: #58a6ff; } .c1 { fill: #f0883e; stroke: #f0883e; } .c2 { fill: #3fb950; stroke: #3fb950; }
.c3 { fill: #bc8cff; stroke: #bc8cff; } .c4 { fill: #d29922; stroke: #d29922; }
}
"""


@dataclass(frozen=True)
class Words:
    """The words of a plot: its title, and the caption of its axis."""

    title: str
    caption: str


@dataclass(frozen=True)
class Mark:
    """One mark: its place on the axis, its text for a pointer, and the ends of its interval."""

    x: float
    told: str
    reach: tuple[float, float] | None = None
    hollow: bool = False


@dataclass(frozen=True)
class Mean:
    """A mean ratio, the number of rows that it covers, and the number of rows of its family."""

    ratio: float
    rows: int
    of: int

    @property
    def is_partial(self) -> bool:
        return self.rows < self.of


Marked = Callable[[str, str], Mark | None]  # arguments: row, name
Ticks = Sequence[tuple[float, str, bool]]


def ratio_plot(
    rows: Sequence[str],
    names: Sequence[str],
    found: Callable[[str, str], tuple[MetricResult, str] | None],
    words: Words,
) -> str:
    """Return a plot of ratios with intervals on a logarithmic axis that contains 1.

    Args:
        rows: the ids of the rows, from top to bottom.
        names: the names of the legend.
        found: returns the result of a row for a name, and the text of its mark.
        words: title and caption.
    """
    results = [own[0] for row in rows for name in names if (own := found(row, name))]
    frame = _frame(rows)
    scale = speedup_scale(results, frame.left, frame.right)

    def marked(row: str, name: str) -> Mark | None:
        if (own := found(row, name)) is None:
            return None
        low, high = (scale.at(bound) for bound in own[0].interval)
        return Mark(scale.at(own[0].ratio), own[1], (low, high))

    return _plot(rows, names, frame, _ratio_ticks(scale), marked, words)


def mean_plot(rows: Sequence[str], names: Sequence[str], found: Callable[[str, str], Mean | None], words: Words) -> str:
    """Return a plot of mean ratios, which have no intervals, on a logarithmic axis that contains 1."""
    frame = _frame(rows)
    means = [mean for row in rows for name in names if (mean := found(row, name))]
    scale = ratio_scale([mean.ratio for mean in means], [], frame.left, frame.right)

    def marked(row: str, name: str) -> Mark | None:
        mean = found(row, name)
        if mean is None:
            return None
        return Mark(
            scale.at(mean.ratio), f"{mean.ratio:.2f}x over {mean.rows} of {mean.of} rows", hollow=mean.is_partial
        )

    return _plot(rows, names, frame, _ratio_ticks(scale), marked, words)


def share_plot(
    rows: Sequence[str], names: Sequence[str], found: Callable[[str, str], float | None], words: Words
) -> str:
    """Return a plot of shares of a copy. At 100 % a kernel takes as long as a copy of the same bytes."""
    frame = _frame(rows)
    shares = [share for row in rows for name in names if (share := found(row, name))]
    limit = max([1.1, *(min(share, SHARE_LIMIT) for share in shares)])

    def marked(row: str, name: str) -> Mark | None:
        share = found(row, name)
        return Mark(frame.part(min(share, limit) / limit), f"{share:.0%} of a copy") if share else None

    steps = (n / 4 for n in range(int(limit * 4) + 1))
    ticks = [(frame.part(tick / limit), f"{tick:.0%}", tick == 1) for tick in steps]
    return _plot(rows, names, frame, ticks, marked, words)


def _ratio_ticks(scale: LogScale) -> Ticks:
    return [(scale.at(tick), f"{tick:g}x", tick == 1) for tick in scale.ticks()]


def _frame(rows: Sequence[str]) -> Frame:
    longest = max(map(len, rows), default=0)
    return Frame(rows=len(rows), row_height=ROW_HEIGHT, left=20 + longest * CHARACTER_WIDTH, right=WIDTH - 30)


def _plot(rows: Sequence[str], names: Sequence[str], frame: Frame, ticks: Ticks, marked: Marked, words: Words) -> str:
    parts = [frame.axis(_apart(ticks))]
    for index, row in enumerate(rows):
        middle = frame.middle(index)
        parts.append(text_at(row, 6.0, middle + 4, "row"))
        for number, name in enumerate(names):
            mark = marked(row, name)
            if mark is not None:
                hover = element("title", f"{row}, {name}: {mark.told}")
                drawn = [*_whisker(mark, middle), _shape(number, mark.x, middle)]
                parts.append(
                    element("g", hover, *drawn, kind=f"c{number % len(MARKS)}{' part' if mark.hollow else ''}")
                )
    bottom = frame.top(frame.rows) + AXIS_HEIGHT
    parts.append(text_at(words.caption, (frame.left + frame.right) / 2, bottom + 10, "caption", anchor="middle"))
    top = TITLE_HEIGHT + LEGEND_HEIGHT
    height = top + bottom + CAPTION_HEIGHT
    box = f"0 {-top:.0f} {WIDTH:.0f} {height:.0f}"
    head = [
        element("title", words.title),
        element("style", Markup(STYLE)),
        text_at(words.title, 6.0, 18 - top, "title"),
        _legend(names),
    ]
    drawing = element(
        "svg", *head, *parts, kind="plot", xmlns="http://www.w3.org/2000/svg", viewBox=box, width=f"{WIDTH:.0f}",
        height=f"{height:.0f}", role="img",
    )  # fmt: skip
    return f"{drawing}\n"


def _apart(ticks: Ticks) -> list[tuple[float, str, bool]]:
    """Return the ticks whose labels do not touch the label before."""
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
