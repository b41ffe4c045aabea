"""Plots of the field: one family's rows, every contender's mark on each, as SVG files that stand by themselves.

A page in Markdown shows them as images, so each brings its own style, for a light and for a dark reader. Marks differ
in shape and in colour. A contender without a time on a row has no mark there; the page's table says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from kernwright.judge.verdict import MetricResult
from kernwright.report.field import Field, Standing
from kernwright.report.plots import (
    AXIS_HEIGHT,
    CHARACTER_WIDTH,
    SHARE_LIMIT,
    WIDTH,
    Frame,
    element,
    speedup_scale,
    text_at,
)
from kernwright.tasks.task import Task

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
Drawn = Callable[[Standing, float], tuple[float, Sequence[Markup], str] | None]


def plots_of(field: Field) -> dict[str, str]:
    """File names and contents: for each family that has a time, speedups and shares of a copy."""
    files = {}
    for task in field.tasks:
        if any(_kernels(standing) for standing in _standings(field, task)):
            files[f"{task.name}_speedup.svg"] = speedup_plot(field, task)
            files[f"{task.name}_copy.svg"] = copy_plot(field, task)
    return files


def speedup_plot(field: Field, task: Task) -> str:
    """The baseline's time over each contender's, kernels alone where they can be timed so, with intervals."""
    results = [result for standing in _standings(field, task) if (result := _kernels(standing))]
    frame = _frame(field, task)
    scale = speedup_scale(results, frame.left, frame.right)

    def draw(standing: Standing, middle: float) -> tuple[float, Sequence[Markup], str] | None:
        result = _kernels(standing)
        if result is None:
            return None
        start, end = (scale.at(bound) for bound in result.interval)
        whisker = element("line", kind="whisker", x1=start, x2=end, y1=middle, y2=middle)
        return scale.at(result.ratio), [whisker], f"{result.ratio:.2f}x, {result.candidate_us:.1f} us"

    ticks = [(scale.at(tick), f"{tick:g}x", tick == 1) for tick in scale.ticks()]
    return _plot(field, task, frame, ticks, draw, f"{task.name}: {field.baseline}'s time over each contender's")


def copy_plot(field: Field, task: Task) -> str:
    """What a copy of the row's fewest bytes takes, over what each contender takes: 100 % is as fast as memory."""
    frame = _frame(field, task)
    shares = [share for standing in _standings(field, task) if (share := _share(standing))]
    limit = max([1.1, *(min(share, SHARE_LIMIT) for share in shares)])

    def draw(standing: Standing, middle: float) -> tuple[float, Sequence[Markup], str] | None:
        share = _share(standing)
        return (frame.part(min(share, limit) / limit), [], f"{share:.0%} of a copy") if share else None

    ticks = [
        (frame.part(tick / limit), f"{tick:.0%}", tick == 1) for tick in (n / 4 for n in range(int(limit * 4) + 1))
    ]
    return _plot(field, task, frame, ticks, draw, f"{task.name}: share of a copy of the same bytes")


def _frame(field: Field, task: Task) -> Frame:
    longest = max((min(len(row.id), LONGEST_LABEL) for row in field.wanted(task)), default=0)
    return Frame(len(field.wanted(task)), ROW_HEIGHT, 20 + longest * CHARACTER_WIDTH, WIDTH - 30)


def _plot(
    field: Field, task: Task, frame: Frame, ticks: Sequence[tuple[float, str, bool]], draw: Drawn, title: str
) -> str:
    parts = [frame.axis(_apart(ticks))]
    for index, row in enumerate(field.wanted(task)):
        middle = frame.middle(index)
        label = row.id if len(row.id) <= LONGEST_LABEL else f"{row.id[: LONGEST_LABEL - 1]}…"
        parts.append(text_at(label, 6.0, middle + 4, "row", hover=row.id))
        for number, name in enumerate(field.contenders):
            standing = field.standing(task, row, name)
            drawn = draw(standing, middle) if standing else None
            if drawn is not None:
                x, more, told = drawn
                hover = element("title", f"{row.id}, {name}: {told}")
                parts.append(element("g", hover, *more, _mark(number, x, middle), kind=f"c{number % len(MARKS)}"))
    height = frame.top(frame.rows) + AXIS_HEIGHT + LEGEND_HEIGHT
    box = f"0 {-LEGEND_HEIGHT:.0f} {WIDTH:.0f} {height:.0f}"
    body = Markup("").join([element("title", title), element("style", Markup(STYLE)), _legend(field), *parts])
    drawing = element(
        "svg", body, kind="plot", xmlns="http://www.w3.org/2000/svg", viewBox=box, width=f"{WIDTH:.0f}",
        height=f"{height:.0f}", role="img",
    )  # fmt: skip
    return f"{drawing}\n"


def _apart(ticks: Sequence[tuple[float, str, bool]]) -> list[tuple[float, str, bool]]:
    """Without those whose labels would touch the one before."""
    kept: list[tuple[float, str, bool]] = []
    for tick in ticks:
        if not kept or tick[0] - kept[-1][0] >= LEAST_GAP:
            kept.append(tick)
    return kept


def _legend(field: Field) -> Markup:
    parts, x = [], 14.0
    for number, name in enumerate(field.contenders):
        words = text_at(name, x + 10, -8.0, "row")
        parts += [element("g", _mark(number, x, -12.0), kind=f"c{number % len(MARKS)}"), words]
        x += 34 + len(name) * CHARACTER_WIDTH
    return Markup("").join(parts)


def _mark(number: int, x: float, y: float) -> Markup:
    return element("path", kind="marker", d=MARKS[number % len(MARKS)], transform=f"translate({x:.2f},{y:.2f})")


def _standings(field: Field, task: Task) -> list[Standing]:
    found = [field.standing(task, row, name) for row in field.wanted(task) for name in field.contenders]
    return [standing for standing in found if standing]


def _share(standing: Standing) -> float | None:
    result = _kernels(standing)
    return standing.row.copy_us / result.candidate_us if result and standing.row.copy_us else None


def _kernels(standing: Standing) -> MetricResult | None:
    """Their time alone, where it can be had; else a run of calls."""
    return standing.result("device") or standing.result("stream")
