"""kernwright results: the pages that a ledger's sweeps amount to, and whether they still say what the ledger says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say, write_whole
from kernwright.cli.records.ledger import LedgerFolder
from kernwright.core.errors import KernwrightError, LedgerError

if TYPE_CHECKING:
    from kernwright.ledger.ledger import Ledger
    from kernwright.report.field.field import Field
    from kernwright.tasks.task import Task

PLOTS = ("*_speedup.svg", "*_copy.svg", "*_wall.svg")
GENERATED = re.compile(r"^Generated from a ledger by `([^`]*)`", re.MULTILINE)  # as every page says near its head


def results(
    ledger: LedgerFolder = None,
    page: Annotated[Path, typer.Option(help="the state of the field")] = Path("docs/field.md"),
    ours: Annotated[
        Path,
        typer.Option(help="results of the ops that ship; a family's lie in its task's folder, or below another page"),
    ] = Path("docs/results.md"),
    baseline: Annotated[str, typer.Option(help="what all of the field were compared with")] = "eager",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cuda",
    model: Annotated[
        str | None, typer.Option(help="of a ledger with records of several models of it: the one to write of")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="globs over row ids, or sets; smoke on a CPU, else production")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="write nothing: compare the pages with the ledger")] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="replace pages of other ledgers, devices or rows; remove those without records"),
    ] = False,
    pack: Annotated[
        Path | None,
        typer.Option(help="write no page, but the runs that pages use, to field.tar.xz and ops.tar.xz in this folder"),
    ] = None,
) -> None:
    """Writes the pages that the ledger has records for: the field's, and those of the ops that ship.

    With --check: exit status 1 where a page and the ledger disagree, where there is a page that the ledger does not
    make, a record is of another task digest or baseline, or the ledger is not what was written.
    """
    from kernwright.ledger.ledger import Ledger
    from kernwright.report.field.field import Field
    from kernwright.report.results.page import family_page_of, files_of
    from kernwright.report.results.results import Results
    from kernwright.tasks.catalog import find_task, list_tasks
    from kernwright.tasks.task import tasks_with_rows

    book = Ledger.existing(ledger)
    tasks = [find_task(name) for name in list_tasks()]
    wanted = rows or ("smoke" if device == "cpu" else "production")
    if rows:
        tasks_with_rows(tasks, rows, named=False)  # or the page would be of nothing
    refuse_damage(book.root, check)
    field = Field.gathered(book, tasks, baseline, device, wanted, model)
    own = Results.gathered(book, tasks, device, wanted, model)
    if pack is not None:
        pack_pages(book, tasks, field.recorded_in | own.recorded_in, pack)
        return
    told = f"kernwright results --ledger {shlex.quote(named(book.root))}"
    asked = f"--device {device} --rows {shlex.quote(wanted)}{f' --model {shlex.quote(model)}' if model else ''}"
    files: dict[Path, str] = {}
    stale: list[str] = []
    if field.standings or field.stale:
        files |= field_files(field, page, f"{told} --baseline {baseline} {asked}")
        stale += field.stale
    if own.standings or own.stale:
        files |= files_of(own, ours, f"{told} {asked}")
        stale += own.stale
    left = left_over(files, [page, ours, *(family_page_of(task, ours) for task in tasks)])
    for record in stale:
        say(f"stale, {record}", err=True)
    if check and (files or left):
        if not agree(files, left) or stale:
            raise typer.Exit(1)
        say(f"{len(files)} pages and plots say what {named(book.root)} does")
        return
    if not files:
        raise KernwrightError(
            f"{book.root} holds no verdict of a sweep against {baseline}, nor of kernwright, on {device}",
            "run kernwright sweep first, or name another --ledger, --baseline, --device or --model",
        )
    if not prune:
        refuse_pages_of_others(files)
    write_files(files)
    settle(left, prune)
    pages = [path for path in files if path.suffix == ".md"]
    say(f"{len(pages)} pages, {len(files) - len(pages)} plots: {', '.join(map(str, pages))}")


def refuse_damage(ledger: Path, check: bool) -> None:
    """Pages that are made anew of an edited record agree with it: only the chain of hashes says that it was edited."""
    from kernwright.ledger.verify import verify

    damage = [f"{named(ledger)} is not what was written: {problem}" for problem in verify(ledger)]
    if damage and not check:
        raise LedgerError(damage[0], "kernwright ledger verify lists all that is damaged; no page is made of it")
    for problem in damage:
        say(problem, err=True)
    if damage:
        raise typer.Exit(1)


def pack_pages(book: Ledger, tasks: Sequence[Task], used: Collection[str], folder: Path) -> None:
    """Write one archive for each kind of page. Print each run that is left out, with the reason."""
    from kernwright.ledger.transfer import pack_runs
    from kernwright.report.page_runs import PageRuns

    for name, runs in PageRuns.split(book, tasks, used).items():
        if not runs.used:
            continue
        archive = folder / f"{name}.tar.xz"
        pack_runs(book.root, runs.used, archive, runs.left_out)
        for run, reason in runs.left_out.items():
            say(f"left out of {archive.name}: {run}: {reason}")
        size = archive.stat().st_size
        say(f"{archive}: {len(runs.used)} run(s), {size} bytes; {len(runs.left_out)} run(s) left out")


def field_files(field: Field, page: Path, command: str) -> dict[Path, str]:
    """The field's page, and its plots in a folder beside it."""
    from kernwright.report.field.plots import plots_of

    plots, folder = plots_of(field), page.with_suffix("")
    text = field.page(command, {name.removesuffix(".svg"): f"{folder.name}/{name}" for name in plots})
    return {page: text} | {folder / name: plot for name, plot in plots.items()}


def named(ledger: Path) -> str:
    """As a reader of this checkout would name it; of one that lies elsewhere the last part, which is no machine's."""
    place, here = ledger.resolve(), Path.cwd().resolve()
    return place.relative_to(here).as_posix() if place.is_relative_to(here) else place.name


def left_over(files: Mapping[Path, str], pages: Sequence[Path]) -> list[Path]:
    """Pages, and plots beside them, that are there and that this ledger does not make."""
    plots = [plot for page in pages[:2] for pattern in PLOTS for plot in sorted(page.with_suffix("").glob(pattern))]
    made = {path.absolute() for path in files}
    return [path for path in dict.fromkeys([*pages, *plots]) if path.is_file() and path.absolute() not in made]


def agree(files: Mapping[Path, str], left: Iterable[Path]) -> bool:
    """Says of each file that is not what the ledger makes of it."""
    wrong = [path for path, wanted in files.items() if not says(path, wanted)]
    for path in wrong:
        state = "and the ledger disagree" if path.is_file() else "does not exist"
        say(f"{path} {state}; remedy: the same command without --check", err=True)
    without = list(left)
    for path in without:
        say(f"{path} has no record in the ledger; remedy: {remedy_for(path)}", err=True)
    return not wrong and not without


def says(path: Path, wanted: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == wanted


def command_of(text: str) -> str | None:
    """What a page says that it was made by; None of one that no ledger made."""
    found = GENERATED.search(text)
    return found[1] if found else None


def is_generated(path: Path) -> bool:
    return path.suffix == ".svg" or command_of(path.read_text(encoding="utf-8", errors="replace")) is not None


def remedy_for(path: Path) -> str:
    return "--prune in the place of --check removes it" if is_generated(path) else "move it: no ledger made it"


def refuse_pages_of_others(files: Mapping[Path, str]) -> None:
    """Before anything is written: what another ledger, device or choice of rows made is not this one's to replace."""
    for path, wanted in files.items():
        if path.suffix == ".md" and path.is_file():
            known, own = command_of(path.read_text(encoding="utf-8", errors="replace")), command_of(wanted)
            if known != own:
                raise KernwrightError(
                    f"{path} was made by {f'`{known}`' if known else 'no ledger'}, and not by `{own}`",
                    "--prune replaces it; --page and --ours name other places",
                )


def settle(left: Iterable[Path], prune: bool) -> None:
    """Removes what has no record, where that was asked for; what no ledger made stays in any case."""
    for path in left:
        if prune and is_generated(path):
            path.unlink()
        else:
            say(f"{path} has no record in the ledger, and stays", err=True)


def write_files(files: Mapping[Path, str]) -> None:
    for folder in {path.parent for path in files}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KernwrightError(f"{folder}: {error.strerror}", f"make {folder.parent} a writable folder") from None
    for path, text in files.items():
        write_whole(path, text, f"make {path.resolve().parent} a writable folder, or name another page")
