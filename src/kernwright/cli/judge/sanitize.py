"""kernwright sanitize: run a candidate under NVIDIA's compute-sanitizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.arguments import TaskName, complete_rows
from kernwright.cli.duration import Wait


def sanitize(
    task: TaskName,
    candidate: Annotated[str, typer.Option(help="folder of the candidate, or kernwright for the shipped ops")],
    tool: Annotated[
        list[str] | None,
        typer.Option(help="memcheck, racecheck, initcheck or synccheck; repeatable; default: the first two"),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="globs over row ids, or sets of rows", autocompletion=complete_rows)
    ] = "smoke",
    device: Annotated[str, typer.Option(help="cuda or cuda:N")] = "cuda",
    ledger: Annotated[
        Path | None, typer.Option(help="ledger folder; default: KERNWRIGHT_LEDGER, else .kernwright/ledger")
    ] = None,
    wait: Wait = 0.0,
    deadline: Annotated[float, typer.Option(help="time limit of one tool in seconds")] = 600.0,
) -> None:
    """Run a candidate under compute-sanitizer, on the rows of a task and at odd sizes next to them.

    Exit status 0: no errors; 1: a tool found errors or could not finish; 2: the tools could not run.
    """
    from rich.table import Table

    from kernwright.cli.console import ProgressBar, out
    from kernwright.judge.checks.sanitizer import sanitize

    tools = tool or ["memcheck", "racecheck"]
    with ProgressBar() as bar:
        found = sanitize(task, candidate, rows, tools, device, bar, ledger, wait, deadline)
    table = Table("tool", "outcome", "calls", "seconds", "what")
    for finding in found:
        table.add_row(finding.tool, finding.outcome, str(len(finding.calls)), f"{finding.seconds:.0f}", finding.reason)
    out.print(table)
    raise typer.Exit(0 if all(finding.outcome == "clean" for finding in found) else 1)
