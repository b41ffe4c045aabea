"""kernwright baseline: list, fetch and verify the published packages that serve as baselines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import complete_published, complete_rows, complete_tasks
from kernwright.cli.duration import Wait
from kernwright.cli.output import refuse_unwritable, say, write_whole

if TYPE_CHECKING:
    from kernwright.baselines.lock import Lock
    from kernwright.judge.checks.verification import RowFinding
    from kernwright.packages.tree import Machine, Tree

app = typer.Typer(no_args_is_help=True, help="List, fetch and verify the published baselines.")
MIB = 1 << 20


@app.command("list")
def list_baselines() -> None:
    """List the baselines of the lock file, their wheels, and whether they are in the store."""
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
        typer.Argument(help="baselines; default: all of the lock file", autocompletion=complete_published),
    ] = None,
    cutedsl: Annotated[bool, typer.Option("--cutedsl", help="also fetch CuTe-DSL, which some kernels need")] = False,
    architecture: Annotated[str | None, typer.Option(help="architecture of another machine, such as x86_64")] = None,
    python: Annotated[str | None, typer.Option(help="Python version of that machine, such as 3.12")] = None,
    index: Annotated[str | None, typer.Option(help="package index; default: pip's")] = None,
    find_links: Annotated[Path | None, typer.Option(help="folder to take all wheels from")] = None,
) -> None:
    """Fetch the pinned wheels with pip, check their hashes and unpack them into the store."""
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
    """Return the trees that baselines need on a machine."""
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
                f"name its machine with --architecture and --python: {others}; or add this one to the lock",
            )
        found[name] = tree
    return list(found.values())


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="baselines, or kernwright for the shipped ops; default: all baselines of the lock file",
            autocompletion=complete_published,
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="name or folder of a task; repeatable; default: all", autocompletion=complete_tasks),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="globs over row ids, or production, smoke, grid, all", autocompletion=complete_rows),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="file to write the findings to")] = None,
    wait: Wait = 0.0,
    processes: Annotated[int, typer.Option(min=1, help="number of processes; each verifies some of the rows")] = 1,
) -> None:
    """Compare baselines with the reference on every row.

    Exit status 0: all rows agree or are declined; 1: a row failed or differs.
    """
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
        except (Unverified, KeyboardInterrupt) as some:  # the findings so far are shown first
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
