"""kernwright sweep: judge all rows of all tasks, contenders against baselines, within a time limit."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import complete_baselines, complete_contenders, complete_rows, complete_tasks
from kernwright.cli.duration import Minutes, Wait
from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.judge.record.verdict import Verdict


def sweep(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(help="tasks by name or folder; default: all", autocompletion=complete_tasks),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="baseline to compare with; repeatable; default: eager", autocompletion=complete_baselines),
    ] = None,
    contender: Annotated[
        list[str] | None,
        typer.Option(
            help="baseline to judge, or kernwright for the shipped ops; repeatable; default: compile",
            autocompletion=complete_contenders,
        ),
    ] = None,
    aa: Annotated[bool, typer.Option("--aa", help="also judge each baseline against itself")] = False,
    rows: Annotated[
        str | None,
        typer.Option(
            help="globs over row ids, or sets of rows; default: smoke on a CPU, else production",
            autocompletion=complete_rows,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
    minutes: Minutes = 0.0,
    rounds: Annotated[
        int | None, typer.Option(help="maximum number of rounds per row; undecided rows end inconclusive")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="ledger folder; default: KERNWRIGHT_LEDGER, else .kernwright/ledger")
    ] = None,
    wait: Wait = 0.0,
) -> None:
    """Judge contenders against baselines, on all rows that have no verdict yet.

    Exit status 0: all rows have a verdict; 1: rows are left, run it again to continue.
    """
    from kernwright.campaign.sweep import Sweep, legs_of
    from kernwright.cli.console import ProgressBar, err, out
    from kernwright.judge.contest.shipped_build import target_of
    from kernwright.judge.device.selection import find_device
    from kernwright.judge.request import rounds_given
    from kernwright.ledger.ledger import default_ledger_root
    from kernwright.report.table import sweep_table
    from kernwright.tasks.catalog import find_task, list_tasks
    from kernwright.tasks.task import tasks_with_rows

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found_device = find_device(device)
    wanted = rows or ("smoke" if device == "cpu" else "production")
    loaded = tasks_with_rows([find_task(name) for name in tasks or list_tasks()], wanted, named=bool(tasks))
    target = target_of(found_device.name, found_device.capability)
    contenders = contender or ["compile"]
    work = Sweep(
        legs=[
            leg
            for name in baseline or ["eager"]
            for leg in legs_of(loaded, name, [*([name] if aa else []), *contenders], target)
        ],
        rows=wanted,
        device=device,
        ledger=ledger or default_ledger_root(),
        minutes=minutes,
        rounds=rounds,
        wait_s=wait,
    )
    for leg in work.legs:
        rounds_given(rounds, leg.task.policy)
        leg.refuse_missing_packages(work.outstanding(leg), found_device.capability)
    try:
        with ProgressBar() as bar:
            for verdict in work.run(bar):
                tell(verdict)
    except KeyboardInterrupt:
        err.print("interrupted: finished rows are kept; run the same command to continue")
        raise
    out.print(sweep_table(work))
    if left := {(leg.label, row.id) for leg in work.legs for row in work.outstanding(leg)}:
        why = "some could not be judged" if left <= work.troubles.keys() else "the time is over"
        err.print(f"not all rows have a verdict: {why}; run the same command to continue")
        raise typer.Exit(1)


def tell(verdict: Verdict) -> None:
    """Print the outcomes of a slice, and why rows were not timed."""
    from kernwright.advice.fault import faults_of
    from kernwright.report.verdict_table import fault_lines, named_rows

    found = Counter(row.verdict for row in verdict.rows)
    told = ", ".join(f"{count} {outcome}" for outcome, count in found.most_common())
    say(f"{verdict.task}: {verdict.candidate} against {verdict.baseline}: {told}")
    for fault in faults_of(verdict):
        for line in fault_lines(named_rows(fault.rows), f"{fault.outcome}: {fault.reason}", "  "):
            say(line)
