"""The table of a comparison as text: heading and cells, for a terminal and for Markdown."""

from __future__ import annotations

from kernwright.diagnose.compare.comparison import ComparedMeasure, Comparison, percent
from kernwright.diagnose.compare.difference import RunDifference

ABSENT = "-"


def heading(comparison: Comparison) -> list[str]:
    """Return the names of the columns: the measure, the base with its noise, and three for each new side."""
    base, *others = (f"{side.name}{_runs(len(side.dumps))}" for side in comparison.sides)
    return ["", base, "noise", *(word for name in others for word in (name, "change", "95 % interval", "result"))]


def lines(comparison: Comparison) -> list[list[str]]:
    """Return the cells of each row."""
    return [_line(row) for row in comparison.rows]


def _line(row: ComparedMeasure) -> list[str]:
    noise = ABSENT if row.noise is None else f"±{100 * row.noise:.1f} %"
    cells = [row.measure.name, _figure(row, 0), noise]
    for place, found in enumerate(row.differences):
        cells += [_figure(row, place + 1), ABSENT if found is None else percent(found.change), _interval(found)]
        cells.append(row.words(found))
    return cells


def _runs(count: int) -> str:
    return "" if count == 1 else f" ({count} runs)"


def _figure(row: ComparedMeasure, side: int) -> str:
    mean = row.mean(side)
    return ABSENT if mean is None else f"{mean:,.{_digits(mean)}f} {row.measure.unit}"


def _digits(value: float) -> int:
    return 1 if value >= 100 else 2 if value >= 1 else 4


def _interval(found: RunDifference | None) -> str:
    if found is None or found.low is None or found.high is None:
        return ABSENT
    return f"{percent(found.low)} to {percent(found.high)}"
