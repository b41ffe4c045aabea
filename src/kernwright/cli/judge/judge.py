"""kernwright judge: judge one candidate against one baseline on the rows of a task."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import complete_baselines, complete_contenders, complete_rows, complete_tasks
from kernwright.cli.duration import Wait
from kernwright.cli.output import refuse_unwritable, say, write_whole
from kernwright.tasks.catalog import find_task_folder

if TYPE_CHECKING:
    from kernwright.judge.judge_request import JudgeRequest
    from kernwright.judge.rounds.progress import Progress
    from kernwright.service.client import ServedVerdict

SERVER = "Server"


def judge(
    task: Annotated[
        str | None, typer.Argument(help="name or folder of a task", autocompletion=complete_tasks, show_default=False)
    ] = None,
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
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="without TASK: keep a judge of the device warm for --quick runs, until Ctrl-C",
            rich_help_panel=SERVER,
        ),
    ] = False,
    idle: Annotated[
        float,
        typer.Option(help="end --serve after this many minutes without a request", rich_help_panel=SERVER),
    ] = 15.0,
    served: Annotated[
        bool,
        typer.Option("--served/--no-served", help="use a running server for --quick runs", rich_help_panel=SERVER),
    ] = True,
) -> None:
    """Judge a candidate against a baseline on the rows of a task.

    Exit status 0: correct and not slower; 1: any other verdict; 2: it could not be judged.
    """
    if serve:
        serve_device(task, device, idle)
        return
    if task is None:
        raise typer.BadParameter("name a task, or start a server with --serve", param_hint="'TASK'")
    find_task_folder(task)  # reports a misspelt name before torch is imported, which takes seconds
    from kernwright.advice.advice import advice_after
    from kernwright.advice.document import JudgedDocument
    from kernwright.cli.console import ProgressBar, out
    from kernwright.cli.judge.candidate_output import CandidateOutput
    from kernwright.judge.judge_request import JudgeRequest
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
            found = judged_by(request, bar, served, lambda line: say(line, err=True))
    finally:
        for line in output.lines() if output else ():
            say(line)
    verdict, advice = found.verdict, advice_after(found.verdict, request)
    out.print(verdict_table(verdict) or verdict_title(verdict))
    for shown in verdict_lines(verdict):
        out.print(shown, soft_wrap=True)
    if json_file is not None:
        document = JudgedDocument.of(verdict, advice, found.served)
        write_whole(json_file, document.model_dump_json(indent=1) + "\n", "the verdict is in the ledger")
    say(f"  run     {verdict.run} in {ledger or default_ledger_root()}")
    if found.served:
        say(f"  served  judgement {found.served.judgement} of the server (process {found.served.process})")
    for step in advice.commands:
        say(f"  next    {step.purpose}:\n            {step.command}")
    raise typer.Exit(verdict.exit_status)


def judged_by(request: JudgeRequest, progress: Progress, served: bool, tell: Callable[[str], None]) -> ServedVerdict:
    """Judge a quick request through a server if there is one, and any other request in this process."""
    from kernwright.service.client import ServedVerdict, quick_judge

    if request.quick and served:
        return quick_judge(request, progress, tell)
    from kernwright.judge.request import judge

    return ServedVerdict(judge(request, progress))


def serve_device(task: str | None, device: str, idle: float) -> None:
    """Run the server of a device until Ctrl-C or until nobody used it for `idle` minutes."""
    if task is not None:
        raise typer.BadParameter(f"--serve takes no TASK, got {task!r}", param_hint="'TASK'")
    if not (idle > 0 and math.isfinite(idle)):
        raise typer.BadParameter(f"--idle must be above 0 and finite, got {idle:g}", param_hint="'--idle'")
    from kernwright.service.server import Server

    Server(device, idle * 60, say).run()
