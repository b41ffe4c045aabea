"""kernwright sanitize: a candidate's calls under NVIDIA's compute-sanitizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.duration import Wait


def sanitize(
    task: Annotated[str, typer.Argument(help="a task's name, or its folder")],
    candidate: Annotated[
        str, typer.Option(help="the candidate's folder, or kernwright: the ops that this package ships")
    ],
    tool: Annotated[
        list[str] | None, typer.Option(help="memcheck, racecheck, initcheck or synccheck; the first two by default")
    ] = None,
    rows: Annotated[str | None, typer.Option(help="globs over row ids; the smoke rows by default")] = "smoke",
    device: Annotated[str, typer.Option(help="cuda or cuda:N")] = "cuda",
    ledger: Annotated[
        Path | None, typer.Option(help="the ledger's folder; else KERNWRIGHT_LEDGER, else .kernwright/ledger")
    ] = None,
    wait: Wait = 0.0,
    deadline: Annotated[float, typer.Option(help="seconds that one tool may take")] = 600.0,
) -> None:
    """Runs a candidate's rows, and their odd neighbours, under compute-sanitizer. Exit status 0: nothing was found;
    1: one found errors, or could not finish; 2: it could not run."""
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
