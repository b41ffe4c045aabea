"""kernwright judge: judge one candidate against one baseline on the rows of a task."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.arguments import TaskName, complete_baselines, complete_contenders, complete_rows
from kernwright.cli.duration import Wait
from kernwright.cli.output import refuse_unwritable, say, write_whole


def judge(
    task: TaskName,
    candidate: Annotated[
        str | None, typer.Option(help="folder of the candidate, or kernwright for the shipped ops")
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            help="baseline: eager, compile, a published package, or an adapter of the task",
            autocompletion=complete_baselines,
        ),
    ] = "eager",
    contender: Annotated[
        str | None,
        typer.Option(help="baseline to judge in place of a candidate", autocompletion=complete_contenders),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="globs over row ids, or production, smoke, grid, all; separated by commas",
            autocompletion=complete_rows,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
    seed: Annotated[
        int | None, typer.Option(help="seed of the inputs and the order, to repeat a run; not evidence")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="check correctness and measure rough times; not evidence")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="file to write the verdict to")] = None,
    aa: Annotated[bool, typer.Option("--aa", help="judge the baseline against itself")] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="ledger folder; default: KERNWRIGHT_LEDGER, else .kernwright/ledger")
    ] = None,
    wait: Wait = 0.0,
    rounds: Annotated[
        int | None, typer.Option(help="maximum number of rounds; undecided rows end inconclusive")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="deciding metric: wall, stream or device; default: the task's, usually stream")
    ] = None,
    deadline: Annotated[float, typer.Option(help="time limit of one call on a GPU in seconds")] = 30.0,
    show_output: Annotated[
        bool, typer.Option("--show-output", help="show what the candidate prints, in Python and in native code")
    ] = False,
) -> None:
    """Judge a candidate against a baseline on the rows of a task.

    Exit status 0: correct and not slower; 1: any other verdict; 2: it could not be judged.
    """
    from kernwright.cli.console import ProgressBar, out
    from kernwright.cli.judge.candidate_output import CandidateOutput
    from kernwright.cli.judge.next_step import next_steps
    from kernwright.judge.request import JudgeRequest, judge
    from kernwright.ledger.ledger import default_ledger_root
    from kernwright.report.verdict_table import verdict_lines, verdict_table, verdict_title
    from kernwright.tasks.candidate import SHIPPED

    if candidate == SHIPPED and contender is None:  # a folder of that name is refused as a candidate
        candidate, contender = None, SHIPPED
    if json_file is not None:
        refuse_unwritable(json_file)
    output = CandidateOutput() if show_output else None
    request = JudgeRequest(
        task=task, candidate=Path(candidate) if candidate else None, baseline=baseline, contender=contender, rows=rows,
        device=device, seed=seed,
        quick=quick, against_itself=aa, ledger=ledger, wait_s=wait, deadline_s=deadline,
        rounds=rounds, metric=metric, output=output.take if output else None,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: what was finished is recorded
    try:
        with ProgressBar() as bar:
            verdict = judge(request, bar)
    finally:
        for line in output.lines() if output else ():
            say(line)
    out.print(verdict_table(verdict) or verdict_title(verdict))
    for shown in verdict_lines(verdict):
        out.print(shown, soft_wrap=True)
    if json_file is not None:
        write_whole(json_file, verdict.model_dump_json(indent=1) + "\n", "the verdict is in the ledger")
    say(f"  run     {verdict.run} in {ledger or default_ledger_root()}")
    for step in next_steps(verdict, request):
        say(f"  next    {step.purpose}:\n            {step.command}")
    raise typer.Exit(verdict.exit_status)
