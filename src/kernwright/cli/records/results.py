"""``kernwright results``: write the pages of a ledger's sweeps, or check that they agree with the ledger."""

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
    from kernwright.report.field.summary import OwnStanding
    from kernwright.report.results.results import Results
    from kernwright.tasks.task import Task

MADE = ("*_speedup.svg", "*_copy.svg", "*_wall.svg", "summary.svg", "*.md")  # files in the folder of a page
GENERATED = re.compile(r"^Generated from a ledger by `([^`]*)`", re.MULTILINE)  # near the top of every page


def results(
    ledger: LedgerFolder = None,
    page: Annotated[
        Path,
        typer.Option(help="page that compares the baselines; family pages and plots go to the folder of the same name"),
    ] = Path("docs/field.md"),
    ours: Annotated[
        Path,
        typer.Option(
            help="page of the shipped ops; family pages and plots go to the folder of the same name; the table in the "
            "README of the checkout is updated, too"
        ),
    ] = Path("docs/results.md"),
    baseline: Annotated[str, typer.Option(help="baseline of the page that compares the baselines")] = "eager",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cuda",
    model: Annotated[
        str | None, typer.Option(help="device model to use; needed if the ledger has records of several models")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="globs over row ids, or sets of rows; default: smoke on a CPU, else production")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="compare the pages with the ledger; write nothing")] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="replace pages of other ledgers, devices or rows; remove pages without records"),
    ] = False,
    pack: Annotated[
        Path | None,
        typer.Option(
            help="write the runs that the pages use to field.tar.xz and ops.tar.xz in this folder; write no page"
        ),
    ] = None,
) -> None:
    """Write the result pages: the comparison of the baselines, and that of the shipped ops.

    With --check, the exit status is 1 if a page differs from the ledger or has no record in it, if the task or the
    baseline of a record has changed, or if the ledger is damaged.
    """
    from kernwright.ledger.ledger import Ledger
    from kernwright.report.field.field import Field
    from kernwright.report.field.page import field_files
    from kernwright.report.results.page import files_of
    from kernwright.report.results.readme import readme_of, readme_text
    from kernwright.report.results.results import Results
    from kernwright.tasks.catalog import find_task, list_tasks
    from kernwright.tasks.task import tasks_with_rows

    book = Ledger.existing(ledger)
    tasks = [find_task(name) for name in list_tasks()]
    wanted = rows or ("smoke" if device == "cpu" else "production")
    if rows:
        tasks_with_rows(tasks, rows, named=False)  # refuses globs that match no row
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
        files |= field_files(field, page, f"{told} --baseline {baseline} {asked}", own_standings(own, baseline))
        stale += field.stale
    if own.standings or own.stale:
        files |= files_of(own, ours, f"{told} {asked}")
        if readme := readme_of(ours):
            files[readme] = readme_text(readme, own, ours, f"{told} {asked}")
        stale += own.stale
    left = left_over(files, [page, ours])
    for record in stale:
        say(f"stale, {record}", err=True)
    if check and (files or left):
        if not agree(files, left) or stale:
            raise typer.Exit(1)
        say(f"{len(files)} pages and plots agree with {named(book.root)}")
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
    """Refuse a damaged ledger: pages made from an edited record would agree with it."""
    from kernwright.ledger.verify import verify

    damage = [f"{named(ledger)} is damaged: {problem}" for problem in verify(ledger)]
    if damage and not check:
        raise LedgerError(
            damage[0], "run `kernwright ledger verify` for the list; no page is made from a damaged ledger"
        )
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


def own_standings(own: Results, baseline: str) -> dict[str, OwnStanding]:
    """Return the standing of our ops against the field's baseline, by task."""
    from kernwright.report.field.summary import OwnStanding
    from kernwright.report.results.summary import FamilySummary

    found = {}
    for task in own.families:
        summary = FamilySummary.of(own, task)
        if baseline in summary.over:
            found[task.name] = OwnStanding(summary.over[baseline], summary.own_share)
    return found


def named(ledger: Path) -> str:
    """Return the path of a ledger relative to this folder; of a ledger elsewhere, its name alone."""
    place, here = ledger.resolve(), Path.cwd().resolve()
    return place.relative_to(here).as_posix() if place.is_relative_to(here) else place.name


def left_over(files: Mapping[Path, str], pages: Sequence[Path]) -> list[Path]:
    """Return the existing pages and plots that this ledger does not make."""
    beside = [path for page in pages for pattern in MADE for path in sorted(page.with_suffix("").glob(pattern))]
    made = {path.absolute() for path in files}
    return [path for path in dict.fromkeys([*pages, *beside]) if path.is_file() and path.absolute() not in made]


def agree(files: Mapping[Path, str], left: Iterable[Path]) -> bool:
    """Return whether all files agree with the ledger. Print each file that does not."""
    wrong = [path for path, wanted in files.items() if not says(path, wanted)]
    for path in wrong:
        state = "and the ledger disagree" if path.is_file() else "does not exist"
        say(f"{path} {state}; remedy: run the same command without --check", err=True)
    without = list(left)
    for path in without:
        say(f"{path} has no record in the ledger; remedy: {remedy_for(path)}", err=True)
    return not wrong and not without


def says(path: Path, wanted: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == wanted


def command_of(text: str) -> str | None:
    """Return the command that a page names as its origin; None for a page that was not generated."""
    found = GENERATED.search(text)
    return found[1] if found else None


def is_generated(path: Path) -> bool:
    return path.suffix == ".svg" or command_of(path.read_text(encoding="utf-8", errors="replace")) is not None


def remedy_for(path: Path) -> str:
    return "run with --prune instead of --check to remove it" if is_generated(path) else "move it: it was not generated"


def refuse_pages_of_others(files: Mapping[Path, str]) -> None:
    """Refuse to replace a page that was made from another ledger, device or choice of rows."""
    from kernwright.report.results.readme import BEGIN

    for path, wanted in files.items():
        if path.suffix == ".md" and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            known, own = command_of(text), command_of(wanted)
            if known is None and BEGIN in text:  # a README whose generated part is empty
                continue
            if known != own:
                raise KernwrightError(
                    f"{path} was made by {f'`{known}`' if known else 'hand'}, not by `{own}`",
                    "use --prune to replace it, or --page and --ours to write elsewhere",
                )


def settle(left: Iterable[Path], prune: bool) -> None:
    """Remove generated pages without records if ``prune`` is set. Print the pages that stay."""
    for path in left:
        if prune and is_generated(path):
            path.unlink()
        else:
            say(f"{path} has no record in the ledger and was kept", err=True)


def write_files(files: Mapping[Path, str]) -> None:
    for folder in {path.parent for path in files}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KernwrightError(f"{folder}: {error.strerror}", f"make {folder.parent} a writable folder") from None
    for path, text in files.items():
        write_whole(path, text, f"make {path.resolve().parent} a writable folder, or name another page")
