"""Facts for each check of a review, from the verdicts on a version and from its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kernwright.judge.numerics.cases import distributions_of, neighbour_sizes
from kernwright.judge.record.verdict import RowVerdict, Verdict, baselines_own
from kernwright.tasks.candidate import Candidate
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

MOST_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class ReviewFacts:
    """The facts on one version.

    Attributes:
        verdicts: those that count as evidence, oldest first.
    """

    task: Task
    candidate: Candidate
    verdicts: Sequence[Verdict]

    def on(self, check: str) -> list[str]:
        """Return the facts on one check, one sentence each; none if only a reviewer can answer it."""
        shown = _SHOWN.get(check)
        return list(shown(self)) if shown is not None else []

    @property
    def rows(self) -> list[RowVerdict]:
        """Return the rows of all verdicts."""
        return [row for verdict in self.verdicts for row in verdict.rows]

    @property
    def workloads(self) -> list[Workload]:
        """Return all rows of the op: frozen rows and grid."""
        return [row for row in (*self.task.rows, *self.task.grid_rows) if row.op == self.candidate.file.op]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _grid(facts: ReviewFacts) -> Iterator[str]:
    ran = {row.id: row.verdict for row in facts.rows}
    for kind in ("grid", "smoke", "production"):
        known = [row.id for row in facts.workloads if row.set == kind]
        missing = [name for name in known if name not in ran]
        if known:
            rest = f"; not judged: {_named(missing)}" if missing else ""
            yield f"{len(known) - len(missing)} of {len(known)} {kind} rows were judged{rest}"
    neighbours = facts.task.file.neighbours
    axes = {axis for row in facts.workloads if row.set != "grid" for axis in row.axes}
    free = [axis for axis in neighbours if axis in axes]
    sizes = [size for row in facts.workloads if row.id in ran and row.set != "grid" for size in _odd_sizes(row, free)]
    yield (
        f"odd and prime sizes next to the frozen ones were checked along {', '.join(free)}: {_named(sizes)}"
        if free
        else "no axis has neighbouring sizes: the candidate was checked at the frozen sizes only"
    )
    if fixed := sorted(axes - set(free)):
        yield f"never varied beside the frozen rows: {', '.join(fixed)}"
    yield f"{sum(row.cases for row in facts.rows)} correctness cases ran in {len(facts.verdicts)} runs"


def _odd_sizes(row: Workload, axes: Sequence[str]) -> Iterator[str]:
    own = {axis: row.axes[axis] for axis in axes if axis in row.axes}
    for sizes in neighbour_sizes(own, row.has_strided_tensors):
        yield " ".join(f"{axis}={size}" for axis, size in sizes.items())


def _asymmetry(facts: ReviewFacts) -> Iterator[str]:
    styles = sorted({verdict.style for verdict in facts.verdicts})
    yield (
        f"the candidate's call style is {facts.candidate.style}, judged as {', '.join(styles) or 'nothing yet'}; "
        "allocation of the outputs is inside the timed call on both sides"
    )
    for side in ("baseline", "candidate"):
        names = list(dict.fromkeys(k.name for row in facts.rows for k in row.kernels.get(side, ())))
        counts = [sum(kernel.count for kernel in row.kernels[side]) for row in facts.rows if row.kernels.get(side)]
        if counts:
            yield f"one call of the {side} runs {min(counts)} to {max(counts)} kernels or operators: {_named(names)}"
        else:
            yield f"no kernel or operator of torch was seen in a call of the {side}"
    if unstable := [row.id for row in facts.rows if row.deterministic is False]:
        yield f"two calls on the same inputs gave different bits on: {_named(unstable)}"


def _fallback(facts: ReviewFacts) -> Iterator[str]:
    notes = {note: row.id for row in facts.rows if (note := baselines_own(row.kernels))}
    for note, row in notes.items():
        yield f"{row}: {note}"
    if not notes and any(row.kernels for row in facts.rows):
        yield "no call of the candidate ran all of the baseline's operators"


def _numerics(facts: ReviewFacts) -> Iterator[str]:
    op = facts.task.ops[facts.candidate.file.op]
    yield f"contract {op.contract}; every judged row passed with: {', '.join(distributions_of(op))}"
    worst: dict[str, tuple[float, str]] = {}
    for row in facts.rows:
        for output, errors in row.errors.items():
            for kind in ("max", "rms"):
                own, eager = errors.get(f"{kind}_error"), errors.get(f"eager_{kind}")
                if own is not None and eager:
                    worst[f"{kind} error of {output}"] = max(
                        worst.get(f"{kind} error of {output}", (0.0, "")), (own / eager, row.id)
                    )
    for what, (ratio, row_id) in worst.items():
        yield f"largest {what} over eager's, with normal inputs: {ratio:.2f} ({row_id})"
    if repeated := sum(row.repeated_cases for row in facts.rows):
        yield f"{repeated} cases ran again with fresh inputs, because their error may have been chance"


def _backdoors(facts: ReviewFacts) -> Iterator[str]:
    calls = [row.process_calls for row in facts.rows if row.process_calls]
    yield (
        f"in long runs one process made up to {max(calls)} calls, each compared with the expected output"
        if calls
        else "no long run is recorded"
    )
    seeds = len({verdict.provenance.get("seed") for verdict in facts.verdicts})
    yield f"{len(facts.verdicts)} evidence runs with {seeds} different seeds"
    others = sorted({verdict.verdict for verdict in facts.verdicts} - {"faster", "same"})
    if others:
        yield f"some evidence runs ended {', '.join(others)}"


def _readability(facts: ReviewFacts) -> Iterator[str]:
    for name, data in facts.candidate.sources.items():
        lines = data.decode(errors="replace").splitlines()
        longest = max(map(len, lines), default=0)
        yield f"{name}: {len(lines)} lines, the longest with {longest} characters"


_SHOWN: dict[str, Callable[[ReviewFacts], Iterator[str]]] = {
    "regression-grid": _grid,
    "asymmetry": _asymmetry,
    "hidden-fallback": _fallback,
    "numerics": _numerics,
    "backdoors": _backdoors,
    "readability": _readability,
}
