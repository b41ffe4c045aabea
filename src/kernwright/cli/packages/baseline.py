"""kernwright baseline: the published packages to beat. Which there are, fetching them, checking what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.duration import Wait
from kernwright.cli.output import refuse_unwritable, say, write_whole

if TYPE_CHECKING:
    from kernwright.baselines.lock import Lock
    from kernwright.judge.checks.verification import RowFinding
    from kernwright.packages.tree import Machine, Tree

app = typer.Typer(no_args_is_help=True, help="Published baselines: list, fetch and verify them.")
MIB = 1 << 20


@app.command("list")
def list_baselines() -> None:
    """Lists the baselines of the lock file, their wheels, and whether they lie in the store."""
    from rich.table import Table

    from kernwright.baselines.lock import read_lock
    from kernwright.cli.console import out
    from kernwright.packages.store import Store
    from kernwright.packages.tree import Machine

    lock, store = read_lock(), Store()
    table = Table(title="published baselines", caption=f"store: {store.folder}")
    for column in ("baseline", "wheel", "sha256", "MiB", "here"):
        table.add_column(column, justify="right" if column == "MiB" else "left", overflow="fold")
    users = {
        tree: [b.name for b in lock.baseline if tree in (b.tree, *b.needs)] for tree in (t.name for t in lock.tree)
    }
    for tree in lock.tree:
        if tree.machine in (None, Machine.this()):
            wheels = "\n".join(wheel.file for wheel in tree.wheels)
            hashes = "\n".join(wheel.sha256[:16] for wheel in tree.wheels)
            here = "yes" if store.find(tree) else "no"
            used_by = ", ".join(users[tree.name]) or f"option --{tree.name}"
            table.add_row(used_by, wheels, hashes, f"{tree.bytes / MIB:.1f}", here)
    out.print(table)


@app.command()
def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="baselines, or kernwright for the shipped ops; by default all of the lock file"),
    ] = None,
    cutedsl: Annotated[bool, typer.Option("--cutedsl", help="CuTe-DSL too, which some of their kernels need")] = False,
    architecture: Annotated[str | None, typer.Option(help="for another machine, as in x86_64")] = None,
    python: Annotated[str | None, typer.Option(help="that machine's Python, as in 3.12")] = None,
    index: Annotated[str | None, typer.Option(help="the package index; pip's own by default")] = None,
    find_links: Annotated[Path | None, typer.Option(help="take wheels from this folder only")] = None,
) -> None:
    """Fetches pinned wheels with pip, checks every hash and unpacks them into the store."""
    from kernwright.baselines.lock import read_lock
    from kernwright.packages.download import WheelSource
    from kernwright.packages.store import Store
    from kernwright.packages.tree import Machine

    source = WheelSource(index, find_links.absolute() if find_links else None)
    this = Machine.this()
    machine = Machine(architecture=architecture or this.architecture, python=python or this.python)
    for tree in trees_for(read_lock(), names, machine, cutedsl):
        place = Store().fetch(tree, source, lambda said: say(said, err=True))
        say(f"{tree}: {place}")


def trees_for(lock: Lock, names: Sequence[str] | None, machine: Machine, cutedsl: bool) -> list[Tree]:
    """What some baselines, or all, are made of on a machine."""
    from kernwright.baselines.lock import CUTEDSL
    from kernwright.core.errors import EnvironmentProblem

    wanted = [lock.find(name) for name in names or lock.names()]
    found: dict[str, Tree] = {}
    for name in [*(t for b in wanted for t in (b.tree, *b.needs)), *([CUTEDSL] if cutedsl else [])]:
        tree = lock.tree_for(name, machine)
        if tree is None:
            others = ", ".join(str(tree.machine) for tree in lock.tree if tree.name == name)
            raise EnvironmentProblem(
                f"{name} is not locked for {machine}",
                f"it is for {others}: if it is to run there, say so (--help has how); or add it to the lock",
            )
        found[name] = tree
    return list(found.values())


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="baselines, or kernwright for the shipped ops; by default all of the lock file"),
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="a task's name or folder; repeatable; all by default")] = None,
    rows: Annotated[str | None, typer.Option(help="a glob over row ids, or production, smoke, grid, all")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="write the findings here")] = None,
    wait: Wait = 0.0,
    processes: Annotated[int, typer.Option(min=1, help="that verify at once, each some rows of a task")] = 1,
) -> None:
    """Runs every row through the baseline's worker, against the reference. Exit status 1: one failed, or differs."""
    import signal

    from kernwright.baselines.lock import read_lock
    from kernwright.cli.console import ProgressBar, out
    from kernwright.judge.checks.parallel_verification import Unverified, VerificationJob, VerificationPool
    from kernwright.judge.checks.verification import verify
    from kernwright.report.table import findings_table
    from kernwright.tasks.catalog import find_task, list_tasks
    from kernwright.tasks.task import tasks_with_rows

    if json_file is not None:
        refuse_unwritable(json_file)
    tasks = [find_task(each) for each in task or list_tasks()]
    if rows:  # asked of all tasks, a pattern means those that have such rows
        tasks = tasks_with_rows(tasks, rows, named=bool(task))
    matches = [
        (name, loaded, loaded.narrowed(rows) if rows else None)
        for loaded in tasks
        for name in names or read_lock().names()
    ]
    jobs = [job for name, loaded, own in matches for job in VerificationJob.shared_out(name, loaded, own, device)]
    findings: list[RowFinding] = []
    trouble: Unverified | KeyboardInterrupt | None = None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite end, as Ctrl-C's is: nobody is left behind
    with ProgressBar() as bar:
        try:
            if processes > 1 and len(jobs) > 1:
                for finding in VerificationPool(device, processes, wait).run(jobs, bar):
                    findings.append(finding)  # one by one: what is there when it is interrupted counts
            else:
                for name, loaded, own in matches:
                    for finding in verify(name, loaded, own, device, bar, wait):
                        findings.append(finding)
        except (Unverified, KeyboardInterrupt) as some:  # what was found is shown first
            trouble = some
    findings.sort(key=lambda found: (found.task, found.baseline))
    out.print(findings_table(findings, counted=device != "cpu"))
    if json_file is not None:
        write_whole(json_file, json_of(findings), "run it again")
    if trouble is not None:
        raise trouble
    raise typer.Exit(1 if any(finding.finding in ("failed", "differs") for finding in findings) else 0)


def json_of(findings: Sequence[RowFinding]) -> str:
    import dataclasses
    import json

    return json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1) + "\n"
