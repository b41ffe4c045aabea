"""kernwright tune: measure launch configurations of the Triton kernels on this GPU."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import complete_ops
from kernwright.cli.duration import Minutes, Wait
from kernwright.cli.output import refuse_unwritable, say

if TYPE_CHECKING:
    from rich.table import Table as Printed

    from kernwright.campaign.tuning.trial import Outcome


def tune(
    ops: Annotated[
        list[str] | None,
        typer.Argument(help="ops by name; default: all that have a Triton kernel", autocompletion=complete_ops),
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cuda:N")] = "cuda",
    rows: Annotated[
        str | None,
        typer.Option(help="globs over row ids, or sets of rows; default: production, or smoke in Triton's interpreter"),
    ] = None,
    widths: Annotated[
        str, typer.Option(help="widths to tune instead of the widths of the rows, separated by commas")
    ] = "",
    minutes: Minutes = 0.0,
    again: Annotated[bool, typer.Option("--again", help="also measure cases that the table already has")] = False,
    out: Annotated[
        Path | None, typer.Option(help="file for a copy of the table, to be shipped with Kernwright")
    ] = None,
    wait: Wait = 0.0,
) -> None:
    """Find the fastest launch configuration for each width of the rows, for this user and this GPU model.

    A configuration replaces the default only if its results are correct and it is at least 2 % faster. Finished
    measurements survive an interruption and are not repeated.

    A case is an op with a width, an element size and few or many elements.

    Exit status 0: all cases are measured; 1: some are left, run it again to continue.
    """
    from kernwright.campaign.tuning.tuner import Tuner, find_device, works_of
    from kernwright.cli.console import ProgressBar
    from kernwright.cli.console import out as console
    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.judge.device.lock import device_lock
    from kernwright.ops import FAMILIES
    from kernwright.tasks.catalog import find_task, list_tasks
    from kernwright.tasks.task import tasks_with_rows

    def told(text: str) -> None:
        say(text, err=True)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if strangers := sorted({*(ops or ())} - {*FAMILIES}):
        remedy = did_you_mean(strangers[0], FAMILIES, f"the ops are: {', '.join(sorted(FAMILIES))}")
        raise KernwrightError(f"there is no op {strangers[0]!r}", remedy)
    if out is not None:
        refuse_unwritable(out)
    place = find_device(device)
    pattern = rows or ("production" if place.type == "cuda" else "smoke")
    tasks = tasks_with_rows([find_task(name) for name in list_tasks()], pattern, named=False)
    works = works_of(tasks, pattern, ops or (), _numbers(widths))
    if not works:
        raise KernwrightError(
            f"no row of {', '.join(ops or ['any op'])} with a Triton kernel matches {pattern!r} at these widths",
            "name other ops, --rows or --widths",
        )
    tuner = Tuner(works, place, minutes, again, told)
    if len(tuner.works) < len(works):
        told(f"{len(works) - len(tuner.works)} of {len(works)} cases are in {tuner.path}: --again measures them again")
    done: list[Outcome] = []
    stopped = False
    try:
        with device_lock(str(place), wait), ProgressBar() as bar:
            for outcome in tuner.run(bar):
                done.append(outcome)
    except KeyboardInterrupt:
        stopped = True
    console.print(_printed(done))
    for outcome in done:
        if outcome.problem:
            told(f"{outcome.work.situation}: not tuned: {outcome.problem}")
        for configuration, why in outcome.failed.items():
            told(f"{outcome.work.situation}: {configuration} is excluded: {why}")
    if out is not None:
        tuner.table.write(out)
    left = len(tuner.works) - len(done)
    told(f"{len(tuner.table.entries)} cases in {tuner.path}")
    if left:
        told(f"{left} left: run it again to continue")
    if stopped:
        raise KeyboardInterrupt
    raise typer.Exit(1 if left else 0)


def _numbers(text: str) -> list[int]:
    from kernwright.core.errors import KernwrightError

    words = [word.strip() for word in text.split(",") if word.strip()]
    if wrong := [word for word in words if not word.isdigit() or not 0 < int(word) <= 2**20]:
        raise KernwrightError(f"--widths: {wrong[0]!r} is not a width", "write widths as 3072,4096")
    return [int(word) for word in words]


def _printed(done: list[Outcome]) -> Printed:
    from rich.table import Table

    table = Table("case", "default", "best", title="Triton configurations: tokens x channels per program")
    for name in ("default us", "best us", "gain", "of a copy"):
        table.add_column(name, justify="right")
    for outcome in done:
        if (entry := outcome.entry) is None:
            continue
        default, best = entry.situation.default, entry.configuration
        table.add_row(
            str(entry.situation), str(default), "-" if best == default else str(best),
            f"{entry.default_us:.2f}", f"{entry.us:.2f}",
            "-" if best == default else f"{entry.default_us / entry.us:.3f}x", f"{entry.copy_us / entry.us:.2f}",
        )  # fmt: skip
    return table
