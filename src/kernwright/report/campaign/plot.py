"""The trajectory of a campaign: the speedup of each iteration with its interval, as SVG and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kernwright.campaign.files.iterations_file import outcome_text
from kernwright.campaign.history import History, Iteration
from kernwright.campaign.state.standing import standing_of, target_of
from kernwright.report.verdict_plots import (
    NARROW_WIDTH,
    SHAPES,
    WIDTH,
    LogScale,
    element,
    interval_text,
    magnitude,
    ratio_scale,
    text_at,
)

TOP, HEIGHT, BOTTOM = 24.0, 260.0, 44.0
LEFT, RIGHT = 56.0, 16.0
LABEL_GAP = 26.0  # closer labels of iterations would run into each other
TEXT_WIDTH = 48  # columns of the plot in a terminal
BAND, HIT, MISS = "-", "●", "○"
STYLE = """
.plot { background: #ffffff; font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
text { fill: #24292f; } .tick, .caption { fill: #57606a; } .grid { stroke: #d0d7de; }
.unity { stroke: #57606a; stroke-width: 1.5; } .target { stroke: #1a7f37; stroke-dasharray: 6 4; }
.best { fill: none; stroke: #0969da; stroke-width: 1.6; } .whisker { stroke: currentColor; stroke-width: 1.5; }
.marker { fill: currentColor; stroke: currentColor; stroke-width: 1.6; } .open .marker { fill: #ffffff; }
.outcome-faster { color: #1a7f37; } .outcome-same { color: #0969da; } .outcome-slower { color: #bc4c00; }
.outcome-inconclusive, .outcome-none { color: #57606a; } .outcome-incorrect, .outcome-failed { color: #cf222e; }
.outcome-tampered { color: #8250df; }
"""


@dataclass(frozen=True)
class Point:
    """One iteration in the plot.

    Attributes:
        best: ratio of the best version after the iteration.
    """

    iteration: Iteration
    ratio: float | None
    interval: tuple[float, float] | None
    best: float

    @property
    def outcome(self) -> str:
        ended = self.iteration.ended
        return (ended.verdict or "none") if ended else "none"

    @property
    def kept(self) -> bool:
        return bool(self.iteration.ended and self.iteration.ended.kept)

    @property
    def told(self) -> str:
        idea = self.iteration.idea
        figure = f", {magnitude(self.ratio)}x, interval {interval_text(self.interval)}" if self.ratio else ""
        direction = idea.direction if idea else "unknown"
        return f"iteration {self.iteration.number} ({direction}): {outcome_text(self.iteration)}{figure}"


def points_of(history: History) -> list[Point]:
    """Return the iterations that have ended."""
    found = []
    for each in history.iterations:
        if each.ended:
            ratio = each.ended.ratio if each.ended.ratio and math.isfinite(each.ended.ratio) else None
            best = standing_of(history, before=each.number + 1).ratio
            found.append(Point(each, ratio, each.ended.interval, best))
    return found


def trajectory_plot(history: History, key: str, narrow: bool = False, standalone: bool = False) -> Markup:
    """Return the plot as an SVG element.

    Args:
        key: prefix of the ids in the element.
        narrow: fits a phone.
        standalone: with a style of its own, as an image needs it.
    """
    points, target = points_of(history), target_of(history)
    width = NARROW_WIDTH if narrow else WIDTH
    scale = _scale(points, target)
    places = _places(len(points), width)
    parts = [*_axis(scale, width, target), *_numbers(points, places), _best_line(points, places, scale)]
    parts += [_mark(point, x, scale) for point, x in zip(points, places, strict=True)]
    name = history.started.settings.name if history.started else ""
    about = f"{len(points)} iterations; " + "; ".join(point.told for point in points)
    head = [
        element("title", f"Speedup over the baseline, campaign {name}", id=f"{key}-title"),
        element("desc", about, id=f"{key}-about"),
    ]
    if standalone:
        head.append(Markup(f"<style>{STYLE}</style>"))
    caption = text_at("iteration", (LEFT + width - RIGHT) / 2, TOP + HEIGHT + 38, "caption", anchor="middle")
    box = f"0 0 {width:.0f} {TOP + HEIGHT + BOTTOM:.0f}"
    more = {"xmlns": "http://www.w3.org/2000/svg"} if standalone else {}
    named = f"{key}-title {key}-about"
    kind = "plot narrow" if narrow else "plot"
    return element(
        "svg", *head, *parts, caption, kind=kind, viewBox=box, role="img", aria_labelledby=named, **more
    )  # fmt: skip


def _scale(points: Sequence[Point], target: float | None) -> LogScale:
    """Return the vertical axis: 1, all ratios, and the target if it is not too far away."""
    ratios = [point.ratio for point in points if point.ratio is not None]
    ends = [end for point in points if point.interval for end in point.interval if 0 < end < 1e9]
    return ratio_scale(ratios, [*ends, *([target] if target else [])], TOP + HEIGHT, TOP)


def _places(count: int, width: float) -> list[float]:
    step = (width - LEFT - RIGHT) / max(1, count)
    return [LEFT + step * (index + 0.5) for index in range(count)]


def _axis(scale: LogScale, width: float, target: float | None) -> Iterator[Markup]:
    for tick in scale.ticks():
        y = scale.at(tick)
        yield element("line", kind="unity" if tick == 1 else "grid", x1=LEFT, x2=width - RIGHT, y1=y, y2=y)
        yield text_at(f"{tick:g}×", LEFT - 6, y + 4, "tick", anchor="end")
    if target is not None and scale.low < target < scale.high:
        y = scale.at(target)
        told = element("title", f"bandwidth limit: {magnitude(target)}x")
        yield element("line", told, kind="target", x1=LEFT, x2=width - RIGHT, y1=y, y2=y)
        yield text_at("limit", width - RIGHT, y - 4, "tick", anchor="end")


def _numbers(points: Sequence[Point], places: Sequence[float]) -> Iterator[Markup]:
    last = -math.inf
    for point, x in zip(points, places, strict=True):
        if x - last >= LABEL_GAP:
            yield text_at(str(point.iteration.number), x, TOP + HEIGHT + 18, "tick", anchor="middle")
            last = x


def _best_line(points: Sequence[Point], places: Sequence[float], scale: LogScale) -> Markup:
    """Return the line of the best version: a step where an iteration improved."""
    if not points:
        return Markup("")
    words = []
    for number, (point, x) in enumerate(zip(points, places, strict=True)):
        y = scale.at(point.best)
        words.append(f"H{x:.2f} V{y:.2f}" if number else f"M{x:.2f},{y:.2f}")
    return element("path", kind="best", d=" ".join(words))


def _mark(point: Point, x: float, scale: LogScale) -> Markup:
    told = element("title", point.told)
    kind = f"outcome-{point.outcome}{'' if point.kept else ' open'}"
    if point.ratio is None:  # a cross on the axis: nothing was timed
        return element("g", told, _shape(SHAPES["incorrect"], x, TOP + HEIGHT), kind=kind)
    parts = [told]
    if point.interval:
        low, high = (scale.at(end) for end in point.interval)
        parts.append(element("line", kind="whisker", x1=x, x2=x, y1=low, y2=high))
    path = next(path for name, path in SHAPES.items() if name == point.outcome)
    return element("g", *parts, _shape(path, x, scale.at(point.ratio)), kind=kind)


def _shape(path: str, x: float, y: float) -> Markup:
    return element("path", kind="marker", d=path, transform=f"translate({x:.2f},{y:.2f})")


def trajectory_text(history: History) -> Iterator[str]:
    """Yield the plot for a terminal: a line for each iteration, with its interval on a logarithmic axis."""
    points = points_of(history)
    if not points:
        yield "no iteration has ended yet"
        return
    scale = _scale(points, None)
    axis = LogScale(scale.low, scale.high, 0.0, TEXT_WIDTH - 1.0)
    unity = round(axis.at(1.0))
    for point in points:
        cells = [" "] * TEXT_WIDTH
        cells[unity] = "|"
        figure = "not timed"
        if point.ratio is not None:
            low, high = point.interval or (point.ratio, point.ratio)
            for column in range(round(axis.at(low)), round(axis.at(high)) + 1):
                cells[column] = BAND
            cells[round(axis.at(point.ratio))] = HIT if point.kept else MISS
            figure = f"{point.ratio:8.3f}x"
        outcome = f"{point.outcome}, {outcome_text(point.iteration)}"
        yield f"{point.iteration.number:4d} {''.join(cells)} {figure:>10}  {outcome}"
    yield f"     {'|'.rjust(unity + 1).ljust(TEXT_WIDTH)} 1x is the baseline; {HIT} kept, {MISS} not kept"
