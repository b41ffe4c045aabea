"""Measure one task's rows: each baseline against eager, with the share of a copy's bandwidth.

The times are the judge's own, verified and interleaved. They are kept in a ledger, from which a second call continues.

Exit status 0: every contender has a time on every row, or declines it. 1: a contender failed, or the time was over. 2:
the benchmark could not run here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from kernwright.campaign.sweep import Sweep, legs_of
from kernwright.cli.console import ProgressBar, err, out
from kernwright.core.errors import KernwrightError
from kernwright.judge.device.selection import find_device
from kernwright.judge.record.verdict import Unavailable
from kernwright.ledger.ledger import Ledger
from kernwright.report.field.field import DECLINES, TIMED, Field, Standing
from kernwright.tasks.catalog import find_task
from kernwright.tasks.policy import METRICS, Metric


def benchmark(task: str, *contenders: str) -> None:
    """Run the command line of one family's benchmark."""

    def command(
        rows: Annotated[str | None, typer.Option(help="globs over row ids, or sets; smoke on a CPU")] = None,
        contender: Annotated[list[str] | None, typer.Option(help="a baseline; may be given several times")] = None,
        device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
        metric: Annotated[
            str | None, typer.Option(help=f"{', '.join(METRICS)}; device, on a CPU, which has none, stream")
        ] = None,
        ledger: Annotated[Path, typer.Option(help="the ledger's folder")] = Path(".kernwright/bench") / task,
        minutes: Annotated[float, typer.Option(help="start nothing that would end later; 0: no limit")] = 0.0,
    ) -> None:
        # Checked first, because judging takes minutes.
        shown = _metric(metric or ("stream" if device == "cpu" else "device"))
        wanted = rows or ("smoke" if device == "cpu" else "production")
        found_device, loaded = find_device(device), find_task(task)
        loaded.select(wanted)
        legs = list(legs_of([loaded], "eager", contender or contenders))
        work = Sweep(legs=legs, rows=wanted, device=device, ledger=ledger, minutes=minutes, wait_s=600.0)
        for leg in legs:
            leg.refuse_missing_packages(work.outstanding(leg), found_device.capability)
        with ProgressBar() as bar:
            for verdict in work.run(bar):
                out.print(f"{verdict.candidate}: {len(verdict.rows)} rows", style="dim", highlight=False)
        field = Field.gathered(Ledger(ledger), [loaded], "eager", device.partition(":")[0], wanted)
        out.print(_table(field, shown))
        for line in [*_reasons(field, shown), *_troubles(work)]:
            out.print(line, highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1 if _failed(field, {leg.contender.name for leg in legs}) or _left(work) else 0)

    try:
        typer.run(command)
    except KernwrightError as error:
        print(f"bench {task}: {error}", file=sys.stderr)
        sys.exit(2)


def _metric(name: str) -> Metric:
    for metric in METRICS:
        if metric == name:
            return metric
    raise typer.BadParameter(f"{name!r} is none of {', '.join(METRICS)}", param_hint="--metric")


def _failed(field: Field, contenders: set[str]) -> bool:
    """Return whether a requested baseline was wrong or failed. Declining a row is neither."""
    return any(
        standing.row.verdict not in TIMED and not standing.declines
        for name, standing in _standings(field)
        if name in contenders
    )


def _left(work: Sweep) -> bool:
    """Return whether any row lacks a verdict."""
    left = {(leg.label, row.id) for leg in work.legs for row in work.outstanding(leg)}
    if left - work.troubles.keys():
        err.print("not all rows have a verdict: the time is over; run it again to go on", highlight=False)
    return bool(left)


def _standings(field: Field) -> Iterator[tuple[str, Standing]]:
    (task,) = field.tasks
    for name in field.contenders:
        yield from ((name, found) for row in field.wanted(task) if (found := field.standing(task, row, name)))


def _reasons(field: Field, metric: Metric) -> list[str]:
    """Return the reasons for cells without a time, each reason once."""
    found: dict[str, list[str]] = {}
    for name, standing in _standings(field):
        if standing.result(metric) is None:
            found.setdefault(f"{name}: {_state(standing)}: {_reason(standing, metric)}", []).append(standing.row.id)
    return [f"{why} ({', '.join(rows)})" for why, rows in found.items()]


def _reason(standing: Standing, metric: Metric) -> str:
    result = standing.row.metrics.get(metric)
    if standing.row.verdict in TIMED and isinstance(result, Unavailable):
        return f"no {metric} time: {result.unavailable}"
    return next(iter(standing.row.reasons), "no time").removeprefix(DECLINES)


def _troubles(work: Sweep) -> list[str]:
    return [f"{label}, {row}: {why}" for (label, row), why in work.troubles.items()]


def _table(field: Field, metric: Metric) -> Table:
    (task,) = field.tasks
    table = Table(title=f"{task.name}: {metric} time in us, share of a copy of the same bytes")
    for column in ("row", "MB", "eager", *field.contenders):
        table.add_column(column, justify="left" if column == "row" else "right", no_wrap=True)
    for row in field.wanted(task):
        standings = [field.standing(task, row, name) for name in field.contenders]
        first = next((s for s in standings if s and s.result(metric)), None)
        eager = first.result(metric) if first else None
        home = _cell(eager.baseline_us, first.row.fastest_copy_us, None) if first and eager else "–"
        table.add_row(row.id, f"{row.bytes_min / 1e6:.1f}", home, *(_contender_cell(s, metric) for s in standings))
    return table


def _contender_cell(standing: Standing | None, metric: Metric) -> str:
    result = standing.result(metric) if standing else None
    if standing is None or result is None:
        return _state(standing) if standing else "–"
    return _cell(result.candidate_us, standing.row.fastest_copy_us, result.ratio)


def _state(standing: Standing) -> str:
    return "declines" if standing.declines else standing.row.verdict


def _cell(us: float, fastest_copy_us: float | None, ratio: float | None) -> str:
    share = f" {fastest_copy_us / us:4.0%}" if fastest_copy_us else ""
    return f"{us:.2f}{share}" + (f" {ratio:.2f}x" if ratio else "")
