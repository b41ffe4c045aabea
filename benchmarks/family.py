"""Family: one task's rows by hand, each baseline against eager, with the share of a copy's bandwidth.

The times are the judge's own, verified and interleaved; they lie in a ledger, and a second call goes on from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from kernwright.campaign.ledger import Ledger
from kernwright.campaign.sweep import Sweep, legs_of
from kernwright.cli.console import Bar, out
from kernwright.report.field import Field, Standing
from kernwright.tasks.catalog import find_task
from kernwright.tasks.policy import METRICS, Metric


def benchmark(task: str, *contenders: str) -> None:
    """The command line of one family's benchmark."""

    def command(
        rows: Annotated[str | None, typer.Option(help="globs over row ids, or sets; smoke on a CPU")] = None,
        contender: Annotated[list[str] | None, typer.Option(help="a baseline; may be given several times")] = None,
        device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
        metric: Annotated[str, typer.Option(help="wall, stream or device")] = "device",
        ledger: Annotated[Path, typer.Option(help="the ledger's folder")] = Path(".kernwright/bench") / task,
        minutes: Annotated[float, typer.Option(help="start nothing that would end later; 0: no limit")] = 0.0,
    ) -> None:
        wanted = rows or ("smoke" if device == "cpu" else "production")
        loaded = find_task(task)
        legs = list(legs_of([loaded], "eager", contender or contenders))
        with Bar() as bar:
            for verdict in Sweep(legs, wanted, device, ledger, minutes, wait_s=600.0).run(bar):
                out.print(f"{verdict.candidate}: {len(verdict.rows)} rows", style="dim", highlight=False)
        kind = device.partition(":")[0]
        out.print(_table(Field.gathered(Ledger(ledger), [loaded], "eager", kind, wanted), _metric(metric)))

    typer.run(command)


def _metric(name: str) -> Metric:
    for metric in METRICS:
        if metric == name:
            return metric
    raise typer.BadParameter(f"{name!r} is none of {', '.join(METRICS)}")


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
        return standing.row.verdict if standing else "–"
    return _cell(result.candidate_us, standing.row.fastest_copy_us, result.ratio)


def _cell(us: float, fastest_copy_us: float | None, ratio: float | None) -> str:
    share = f" {fastest_copy_us / us:4.0%}" if fastest_copy_us else ""
    return f"{us:.2f}{share}" + (f" {ratio:.2f}x" if ratio else "")
