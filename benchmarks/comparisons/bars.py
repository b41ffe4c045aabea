"""Milestone bars of the fused modulations and norms, and how far the records of a ledger meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from kernwright.baselines.published import PublishedBaseline
from kernwright.core.op import Contract
from kernwright.judge.record.verdict import MetricResult
from kernwright.report.results.results import (
    LEAST_OF_BEST,
    MOST_LOST_US,
    SHORT_US,
    Results,
    Standing,
    declines,
    geomean,
    is_our_fault,
    loses_clearly,
    tokens_of,
)
from kernwright.tasks.baseline import BUILT_IN
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

PEER = "sglang@0.5.23"
# The best peer of a row is known when the row was judged against each of these that has its op.
PEERS = (PEER, "sglang@0.5.12.post1", "liger@0.8.5", "compile", "eager")
ASKED_OF = (
    "norm_infer", "norm_scale_shift", "fuse_scale_shift", "residual_gate_add", "norm_tanh_mul_add", "ltx2_rms_adaln",
    "ltx2_dual_modulate", "ernie_adaln_residual_gate",
)  # fmt: skip
ELEMENTWISE = ("scale_shift", "residual_gate", "broadcast_add", "ernie_residual_gate")
FEW_TOKENS = 200
LARGE_BYTES = 100e6
Row = tuple[Task, Workload]


@dataclass(frozen=True)
class MilestoneBar:
    """One figure, the value that is required, and the value over the rows that were judged so far."""

    figure: str
    asked: str
    measured: str
    so_far: bool | None  # True if the judged rows meet the bar; None if nothing was measured
    judged: int  # rows with a record of today's sources and baselines
    rows: int  # rows that the bar covers
    one_is_enough: bool = False  # True if a single row can miss the bar
    absent: tuple[str, ...] = ()  # tasks that the bar covers and that were not loaded

    @property
    def met(self) -> bool | None:
        """Return whether the bar is met. None: rows are still to be judged, and no judged row misses it."""
        if self.judged == self.rows and not self.absent:
            return self.so_far
        return False if self.one_is_enough and self.so_far is False else None

    @property
    def verdict(self) -> str:
        if self.judged == self.rows and not self.absent:
            return "–" if self.met is None else "met" if self.met else "missed"
        told = f"judged so far: {self.judged} of {self.rows}"
        told += f", and {len(self.absent)} tasks are missing" if self.absent else ""
        return f"{told}; already missed" if self.met is False else told


def bars_of(results: Results, tasks: Sequence[str] = ASKED_OF) -> list[MilestoneBar]:
    """Return the bars over every production row of these tasks. Records that are not current do not count."""
    current = results.only_current()
    asked = [task for task in results.tasks if task.name in tasks]
    rows = [(task, row) for task in asked for row in task.rows if row.set == "production"]
    elementwise = [(task, row) for task, row in rows if row.op in ELEMENTWISE]
    reducing = [(task, row) for task, row in rows if row.op not in ELEMENTWISE]
    small = [(task, row) for task, row in rows if tokens_of(row) <= FEW_TOKENS]
    direct = [(task, row) for task, row in small if is_one_foreign_call(row.op)]
    others = [(task, row) for task, row in small if not is_one_foreign_call(row.op)]
    bars = [
        _no_faults(current, rows),
        _mean(current, f"wall, {FEW_TOKENS} tokens or fewer, against {PEER}", "wall", others, 2.5),
        _mean(current, "the same, only rows on which that baseline is one tvm-ffi call", "wall", direct, 1.5),
        _mean(current, f"device, ops with a reduction, against {PEER}", "device", reducing, 1.12),
        *_against_best(current, elementwise),
        _mean(current, f"wall, all rows, against {PEER}", "wall", rows, 1.5),
        _clear_losses(current, rows),
        *_shares(current, [(task, row) for task, row in rows if row.bytes_min >= LARGE_BYTES]),
        _same_bits(current, asked),
        _accurate(current, asked),
    ]
    absent = tuple(name for name in tasks if name not in {task.name for task in asked})
    return [replace(bar, absent=absent) for bar in bars]


def is_one_foreign_call(op: str) -> bool:
    """Return whether the peer runs an op with one call of a compiled function, as its just-in-time modules do."""
    adapter = PublishedBaseline.find(PEER).adapter(op)
    return adapter is not None and adapter.file.endswith("_jit.py")


def peers_of(op: str) -> list[str]:
    """Return the peers that have an op: a row must be judged against all of them before its best peer is known."""
    return [name for name in PEERS if name in BUILT_IN or PublishedBaseline.find(name).adapter(op)]


def _is_told(results: Results, task: Task, row: Workload, baseline: str, metric: Metric) -> bool:
    """Return whether a row has a time against a baseline, or the baseline declines the row."""
    standing = results.standing(task, row, baseline)
    return standing is not None and (standing.result(metric) is not None or declines(standing))


def _is_told_of_all(results: Results, task: Task, row: Workload, *metrics: Metric) -> bool:
    return all(_is_told(results, task, row, name, metric) for name in peers_of(row.op) for metric in metrics)


def _timed(
    rows: Iterable[Row], found: Callable[[Task, Workload], MetricResult | None]
) -> list[tuple[str, MetricResult]]:
    pairs = [(row.id, found(task, row)) for task, row in rows]
    return [(id_, result) for id_, result in pairs if result]


def _mean(results: Results, figure: str, metric: Metric, rows: Sequence[Row], least: float) -> MilestoneBar:
    timed = _timed(rows, lambda task, row: results.result(task, row, PEER, metric))
    told = sum(_is_told(results, task, row, PEER, metric) for task, row in rows)
    mean = geomean(result.ratio for _, result in timed)
    asked = f"geomean at least {least:g}x"
    if mean is None:
        return MilestoneBar(
            figure=figure,
            asked=asked,
            measured=f"no time on any of {len(rows)} rows",
            so_far=None,
            judged=told,
            rows=len(rows),
        )
    worst = min(timed, key=lambda pair: pair[1].ratio)
    measured = f"{mean[0]:.3f}x over {mean[1]} of {len(rows)} rows; worst {worst[1].ratio:.3f}x, {worst[0]}"
    return MilestoneBar(
        figure=figure, asked=asked, measured=measured, so_far=mean[0] >= least, judged=told, rows=len(rows)
    )


def _against_best(results: Results, rows: Sequence[Row]) -> list[MilestoneBar]:
    figure = "device, elementwise ops, against the best peer"

    def best(task: Task, row: Workload) -> MetricResult | None:
        found = results.best_peer(task, row, "device")
        return found[1] if found else None

    timed = _timed(rows, best)
    judged = sum(_is_told_of_all(results, task, row, "device") for task, row in rows)
    mean = geomean(result.ratio for _, result in timed)
    each, together = "every row at least 0.98x", "geomean at least 1.02x"
    if mean is None:
        return [
            MilestoneBar(figure=figure, asked=asked, measured="no time", so_far=None, judged=judged, rows=len(rows))
            for asked in (each, together)
        ]
    below = [f"{id_} {result.ratio:.3f}x" for id_, result in timed if result.ratio < 0.98]
    worst = min(timed, key=lambda pair: pair[1].ratio)
    told = f"{len(below)} of {mean[1]} rows below: {_few(below)}; " if below else ""
    told += f"worst {worst[1].ratio:.3f}x, {worst[0]}"
    return [
        MilestoneBar(
            figure=figure,
            asked=each,
            measured=told,
            so_far=not below,
            judged=judged,
            rows=len(rows),
            one_is_enough=True,
        ),
        MilestoneBar(
            figure=figure,
            asked=together,
            measured=f"{mean[0]:.3f}x over {mean[1]} of {len(rows)} rows",
            so_far=mean[0] >= 1.02,
            judged=judged,
            rows=len(rows),
        ),
    ]


def _clear_losses(results: Results, rows: Sequence[Row]) -> MilestoneBar:
    """Count clear losses against each baseline, because the one with the lowest ratio may have a wide interval."""
    figure = (
        f"rows whose whole interval against a baseline lies under {LEAST_OF_BEST}x "
        f"(times under {SHORT_US:g} us: also slower by more than {MOST_LOST_US} us)"
    )
    found = []
    timed = 0
    for metric in METRICS:
        for task, row in rows:
            for name in results.of_row(task, row):
                result = results.result(task, row, name, metric)
                timed += result is not None
                if result and loses_clearly(result):
                    found.append(f"{row.id} {metric} {result.ratio:.3f}x of {name}")
    told = f"{len(found)}{': ' if found else ''}{_few(found)}"
    judged = sum(_is_told_of_all(results, task, row, *METRICS) for task, row in rows)
    return MilestoneBar(
        figure=figure,
        asked="none",
        measured=told,
        so_far=not found if timed else None,
        judged=judged,
        rows=len(rows),
        one_is_enough=True,
    )


def _shares(results: Results, rows: Sequence[Row]) -> list[MilestoneBar]:
    figure = f"device, rows of {LARGE_BYTES / 1e6:.0f} MB or more: share of a copy of the same size"
    shares = {(task.name, row.id): share for task, row in rows if (share := results.share_of_copy(task, row))}
    if not shares:
        return [
            MilestoneBar(
                figure=figure, asked=asked, measured="no time", so_far=None, judged=len(shares), rows=len(rows)
            )
            for asked in ("median at least 92 %", "worst at least 85 %")
        ]
    middle, worst = median(shares.values()), min(shares, key=lambda key: shares[key])
    told = f"{middle:.1%} over {len(shares)} of {len(rows)} rows", f"{shares[worst]:.1%}, {worst[1]}"
    return [
        MilestoneBar(
            figure=figure,
            asked="median at least 92 %",
            measured=told[0],
            so_far=middle >= 0.92,
            judged=len(shares),
            rows=len(rows),
        ),
        MilestoneBar(
            figure=figure,
            asked="worst at least 85 %",
            measured=told[1],
            so_far=shares[worst] >= 0.85,
            judged=len(shares),
            rows=len(rows),
            one_is_enough=True,
        ),
    ]


def _no_faults(results: Results, rows: Sequence[Row]) -> MilestoneBar:
    faults = [f"{row.id} {why}" for task, row in rows if (why := results.fault(task, row))]
    judged = sum(any(s.row.cases or is_our_fault(s) for s in results.of_row(task, row).values()) for task, row in rows)
    told = f"{len(faults)} of {len(rows)} rows{': ' if faults else ''}{_few(faults)}"
    so_far = not faults if judged or faults else None
    return MilestoneBar(
        figure="rows on which our op is incorrect or failed",
        asked="0",
        measured=told,
        so_far=so_far,
        judged=judged,
        rows=len(rows),
        one_is_enough=True,
    )


def _same_bits(results: Results, tasks: Sequence[Task]) -> MilestoneBar:
    """Count the rows of exact ops: the judge compares every case of them with the bits of the eager chain."""
    figure = "exact ops: same bits as the eager chain on every row and grid"
    return _all_correct(results, tasks, "exact", figure, asked="all equal", fault="not equal")


def _accurate(results: Results, tasks: Sequence[Task]) -> MilestoneBar:
    """Count the rows of close ops: the judge allows 1.5 times the error of the eager chain, or a few roundings."""
    figure = "close ops: as accurate as the eager chain on every row and grid"
    return _all_correct(results, tasks, "close", figure, asked="all accurate", fault="not accurate")


def _all_correct(
    results: Results, tasks: Sequence[Task], contract: Contract, figure: str, *, asked: str, fault: str
) -> MilestoneBar:
    """Count the production rows and the rows of grids whose cases were checked under a contract."""
    ops = {(task.name, op) for task in tasks for op, own in task.ops.items() if own.contract == contract}
    frozen = {(task.name, row.id): row.set for task in tasks for row in task.rows}
    timed: dict[tuple[str, str], list[Standing]] = {}
    grid: dict[tuple[str, str], list[Standing]] = {}
    for (task, id_, _), standing in {**results.standings, **results.grid}.items():
        row_set = frozen.get((task, id_), "grid")
        is_judged = standing.row.cases or is_our_fault(standing)
        if (task, standing.row.op) in ops and is_judged and row_set != "smoke":
            (grid if row_set == "grid" else timed).setdefault((task, id_), []).append(standing)
    seen = [standing for found in (*timed.values(), *grid.values()) for standing in found]
    faults = sorted({standing.row.id for standing in seen if is_our_fault(standing)})
    wanted = sum((task.name, row.op) in ops for task in tasks for row in task.rows if row.set == "production")
    in_grids = sum(own.size for task in tasks for own in task.grids if (task.name, own.op) in ops)
    told = f"{len(timed)} of {wanted} rows, {len(grid)} of {in_grids} grid rows, "
    told += f"{sum(standing.row.cases for standing in seen)} cases; {fault}: {_few(faults) or 'none'}"
    judged, so_far = len(timed) + len(grid), not faults if seen else None
    return MilestoneBar(
        figure=figure,
        asked=asked,
        measured=told,
        so_far=so_far,
        judged=judged,
        rows=wanted + in_grids,
        one_is_enough=True,
    )


def _few(words: Sequence[str], most: int = 4) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
