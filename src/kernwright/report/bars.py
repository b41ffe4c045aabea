"""Bars: what the fused modulations and norms are asked for, and what the records say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from kernwright.baselines.published import PublishedBaseline
from kernwright.judge.verdict import MetricResult
from kernwright.ops import FAMILIES
from kernwright.report.results import Results, geomean, tokens_of
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

PEER = "sglang@0.5.23"
MODULATIONS_AND_NORMS = ("modulation", "norm_modulation", "plain_norm", "norm_tanh", "ltx2_modulate", "ernie")
ELEMENTWISE = ("scale_shift", "residual_gate", "broadcast_add", "ernie_residual_gate")
FEW_TOKENS = 200
LARGE_BYTES = 100e6
LEAST_OF_BEST, SHORT_US, MOST_LOST_US = 0.97, 10.0, 0.3
Row = tuple[Task, Workload]


@dataclass(frozen=True)
class Bar:
    """One figure, what is asked of it, and whether it is so; `met` is None where nothing was measured."""

    figure: str
    asked: str
    measured: str
    met: bool | None

    @property
    def verdict(self) -> str:
        return "–" if self.met is None else "met" if self.met else "missed"


def bars_of(results: Results) -> list[Bar]:
    rows = [(task, row) for task, row in results.every_row() if FAMILIES.get(row.op) in MODULATIONS_AND_NORMS]
    elementwise = [(task, row) for task, row in rows if row.op in ELEMENTWISE]
    reducing = [(task, row) for task, row in rows if row.op not in ELEMENTWISE]
    small = [(task, row) for task, row in rows if tokens_of(row) <= FEW_TOKENS]
    direct = [(task, row) for task, row in small if is_one_foreign_call(row.op)]
    others = [pair for pair in small if pair not in direct]
    return [
        _no_faults(results, rows),
        _mean(results, f"wall, {FEW_TOKENS} tokens or fewer, against {PEER}", "wall", others, 2.5),
        _mean(results, "the same, where that is one tvm-ffi call", "wall", direct, 1.5),
        _mean(results, f"device, ops with a reduction, against {PEER}", "device", reducing, 1.12),
        *_against_best(results, elementwise),
        _mean(results, f"wall, all rows, against {PEER}", "wall", rows, 1.5),
        _clear_losses(results, rows),
        *_shares(results, [(task, row) for task, row in rows if row.bytes_min >= LARGE_BYTES]),
        _exact(results, [(task, row) for task, row in rows if task.op_of(row).contract == "exact"]),
    ]


def is_one_foreign_call(op: str) -> bool:
    """Whether sglang runs an op by one call of a compiled function, as its just-in-time modules do."""
    adapter = PublishedBaseline.find(PEER).adapter(op)
    return adapter is not None and adapter.file.endswith("_jit.py")


def _timed(
    rows: Iterable[Row], found: Callable[[Task, Workload], MetricResult | None]
) -> list[tuple[str, MetricResult]]:
    pairs = [(row.id, found(task, row)) for task, row in rows]
    return [(id_, result) for id_, result in pairs if result]


def _mean(results: Results, figure: str, metric: Metric, rows: Sequence[Row], least: float) -> Bar:
    timed = _timed(rows, lambda task, row: results.result(task, row, PEER, metric))
    mean = geomean(result.ratio for _, result in timed)
    asked = f"geomean at least {least:g}x"
    if mean is None:
        return Bar(figure, asked, f"no time on any of {len(rows)} rows", None)
    worst = min(timed, key=lambda pair: pair[1].ratio)
    told = f"{mean[0]:.3f}x over {mean[1]} of {len(rows)} rows; worst {worst[1].ratio:.3f}x, {worst[0]}"
    return Bar(figure, asked, told, mean[0] >= least)


def _against_best(results: Results, rows: Sequence[Row]) -> list[Bar]:
    figure = "device, elementwise ops, against the best peer"

    def best(task: Task, row: Workload) -> MetricResult | None:
        found = results.best_peer(task, row, "device")
        return found[1] if found else None

    timed = _timed(rows, best)
    mean = geomean(result.ratio for _, result in timed)
    each, together = "every row at least 0.98x", "geomean at least 1.02x"
    if mean is None:
        return [Bar(figure, asked, "no time", None) for asked in (each, together)]
    below = [f"{id_} {result.ratio:.3f}x" for id_, result in timed if result.ratio < 0.98]
    worst = min(timed, key=lambda pair: pair[1].ratio)
    told = f"{len(below)} of {mean[1]} rows below: {_few(below)}; " if below else ""
    told += f"worst {worst[1].ratio:.3f}x, {worst[0]}"
    return [
        Bar(figure, each, told, not below),
        Bar(figure, together, f"{mean[0]:.3f}x over {mean[1]} rows", mean[0] >= 1.02),
    ]


def _clear_losses(results: Results, rows: Sequence[Row]) -> Bar:
    figure = (
        f"rows whose whole interval lies under {LEAST_OF_BEST}x of the best peer "
        f"(under {SHORT_US:g} us: slower by more than {MOST_LOST_US} us)"
    )
    found = []
    timed = 0
    for metric in METRICS:
        for task, row in rows:
            best = results.best_peer(task, row, metric)
            timed += best is not None
            if best and loses_clearly(best[1]):
                found.append(f"{row.id} {metric} {best[1].ratio:.3f}x of {best[0]}")
    return Bar(figure, "none", f"{len(found)}{': ' if found else ''}{_few(found)}", not found if timed else None)


def loses_clearly(result: MetricResult) -> bool:
    high = result.interval[1]
    if result.candidate_us < SHORT_US:
        return result.candidate_us * (1 - high) > MOST_LOST_US
    return high < LEAST_OF_BEST


def _shares(results: Results, rows: Sequence[Row]) -> list[Bar]:
    figure = f"device, rows of {LARGE_BYTES / 1e6:.0f} MB or more: share of a copy of the same size"
    shares = {row.id: share for task, row in rows if (share := results.share_of_copy(task, row))}
    if not shares:
        return [Bar(figure, asked, "no time", None) for asked in ("median at least 92 %", "worst at least 85 %")]
    middle, worst = median(shares.values()), min(shares, key=lambda id_: shares[id_])
    return [
        Bar(figure, "median at least 92 %", f"{middle:.1%} over {len(shares)} of {len(rows)} rows", middle >= 0.92),
        Bar(figure, "worst at least 85 %", f"{shares[worst]:.1%}, {worst}", shares[worst] >= 0.85),
    ]


def _no_faults(results: Results, rows: Sequence[Row]) -> Bar:
    faults = [f"{row.id} {why}" for task, row in rows if (why := results.fault(task, row))]
    told = f"{len(faults)} of {len(rows)} rows{': ' if faults else ''}{_few(faults)}"
    return Bar("rows incorrect or failed on our side", "0", told, not faults if rows else None)


def _exact(results: Results, rows: Sequence[Row]) -> Bar:
    """The judge holds an op whose contract is exact to the eager chain's bits on every case of a row."""
    ops = {row.op for _, row in rows}
    timed = [standing.row for task, row in rows for standing in results.of_row(task, row).values()]
    grid = [standing.row for standing in results.grid.values() if standing.row.op in ops]
    seen = [row for row in (*timed, *grid) if row.cases]
    unequal = sorted({row.id for row in seen if row.verdict == "incorrect"})
    told = f"{len({row.id for row in timed if row.cases})} rows, {len({row.id for row in grid})} of grids, "
    told += f"{sum(row.cases for row in seen)} cases; not equal: {_few(unequal) or 'none'}"
    figure = "exact ops: the eager chain's bits on every row and grid"
    return Bar(figure, "all equal", told, not unequal if seen else None)


def _few(words: Sequence[str], most: int = 4) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
