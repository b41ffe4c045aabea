"""Comparison: every measure of a base and of one or more new sides, with notes and regressions."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernwright.diagnose.compare.conditions import conflicts, notes_on, refuse_conflicts
from kernwright.diagnose.compare.difference import LEVEL, RunDifference, difference, noise_of
from kernwright.diagnose.compare.label_runs import LabelRuns, load_sides
from kernwright.diagnose.compare.measure import GATED, Measure, measures_of

WITHOUT_INTERVAL = 0.02  # relative change of a single run that a gate takes for noise
WORDS = {
    "ms": {"better": "faster", "worse": "slower"},
    "MB": {"better": "less", "worse": "more"},
}
ONE_RUN = "has one run: the interval of the denoise step is from its steps, and does not contain how runs differ"


@dataclass(frozen=True, kw_only=True)
class ComparedMeasure:
    """One row: the figures of each side, and the difference of each new side from the base."""

    measure: Measure
    values: tuple[tuple[float, ...], ...]  # the values of each side, base first
    noise: float | None
    differences: tuple[RunDifference | None, ...]

    def words(self, found: RunDifference | None) -> str:
        """Return the outcome in words."""
        if found is None:
            return ""
        if found.method is None:
            return "measured once" if found.copied else "no interval"
        return WORDS[self.measure.unit].get(found.outcome, "within noise")

    def mean(self, side: int) -> float | None:
        """Return the geometric mean of a side's runs, because a change is a ratio of geometric means."""
        values = self.values[side]
        if not values:
            return None
        return statistics.geometric_mean(values) if min(values) > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of a base with new sides."""

    sides: tuple[LabelRuns, ...]
    rows: tuple[ComparedMeasure, ...]
    notes: tuple[str, ...]

    def regressions(self, threshold: float | None = None) -> list[str]:
        """Return the regressions in words. A slower stage is not one, because its time is a part of end to end.

        Args:
            threshold: the least relative change that counts. Without one, every change counts whose interval lies
                above 0, and a change without an interval counts above `WITHOUT_INTERVAL`.
        """
        return [
            f"{side.name}: {row.measure.name} {percent(found.change)}, {row.words(found)}"
            for place, side in enumerate(self.sides[1:])
            for row in self.rows
            if row.measure.kind in GATED
            and (found := row.differences[place]) is not None
            and is_regression(found, threshold)
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "level": LEVEL,
            "sides": [
                {"name": side.name, "files": [str(path) for path in side.paths], "runs": len(side.dumps)}
                for side in self.sides
            ],
            "measures": [
                {
                    "name": row.measure.name,
                    "kind": row.measure.kind,
                    "unit": row.measure.unit,
                    "noise": row.noise,
                    "values": [list(values) for values in row.values],
                    "differences": [found and asdict(found) for found in row.differences],
                }
                for row in self.rows
            ],
            "notes": list(self.notes),
        }


def is_regression(found: RunDifference, threshold: float | None = None) -> bool:
    """Return whether a difference is a regression, as `Comparison.regressions` describes."""
    if found.method is None:
        return not found.copied and found.change > (WITHOUT_INTERVAL if threshold is None else threshold)
    return found.outcome == "worse" and found.change > (threshold or 0.0)


def percent(change: float) -> str:
    """Return a relative change as text."""
    return f"{100 * change:+.1f} %" if abs(change) < 1000 else f"x{1 + change:.0f}"


def compare_names(names: Sequence[str], different: bool = False, root: Path | None = None) -> Comparison:
    """Return the comparison of a base, named first, with one or more new sides.

    Args:
        names: files, folders or labels.
        different: compare runs of different workloads, too, with a note.
    """
    return compare_sides(load_sides(names, root), different)


def compare_sides(sides: Sequence[LabelRuns], different: bool = False) -> Comparison:
    differing = conflicts(sides)
    if not different:
        refuse_conflicts(differing)
    base, *others = sides
    rows = [
        ComparedMeasure(
            measure=measure,
            values=tuple(tuple(measure.values(side.dumps)) for side in sides),
            noise=noise_of(measure, sides),
            differences=tuple(difference(measure, base, new) for new in others),
        )
        for measure in measures_of([dump for side in sides for dump in side.dumps])
    ]
    notes = [*(f"not the same workload: {each}" for each in differing), *notes_on(sides), *_notes_on_runs(sides, rows)]
    return Comparison(sides=tuple(sides), rows=tuple(rows), notes=tuple(notes))


def _notes_on_runs(sides: Sequence[LabelRuns], rows: Sequence[ComparedMeasure]) -> Iterator[str]:
    """Yield notes on the number of runs, where there are too few for an interval."""
    base = sides[0]
    for place, new in enumerate(sides[1:]):
        methods = {found.method for row in rows if (found := row.differences[place]) is not None}
        if methods <= {None}:
            if max(len(base.dumps), len(new.dumps)) == 1:
                yield f"{base.name} and {new.name} have one run each: no difference has an interval; repeat the runs"
        elif "steps" in methods:
            yield f"each of {base.name} and {new.name} {ONE_RUN}; repeat the runs"
        elif min(len(base.dumps), len(new.dumps)) == 1:
            yield f"{new.name} or {base.name} has one run: it is taken to vary as much as the runs of the other"
        if "turns" in methods:
            pairs = len(base.by_turn().keys() & new.by_turn().keys())
            left = len(base.dumps) + len(new.dumps) - 2 * pairs
            rest = f"; {left} further run(s) count for the means only" if left else ""
            yield f"intervals of {new.name} are from {pairs} pairs of runs that took turns{rest}"
