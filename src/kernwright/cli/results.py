"""kernwright results: the pages that a ledger's sweeps amount to, and whether they still say what the ledger says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.ledger import LedgerFolder
from kernwright.cli.output import write_whole
from kernwright.errors import KernwrightError

PLOTS = ("*_speedup.svg", "*_copy.svg", "*_wall.svg")


def results(
    ledger: LedgerFolder = None,
    page: Annotated[Path, typer.Option(help="the state of the field")] = Path("docs/field.md"),
    ours: Annotated[
        Path, typer.Option(help="results of the ops that ship; those of a family lie in its task's folder")
    ] = Path("docs/results.md"),
    baseline: Annotated[str, typer.Option(help="what all of the field were compared with")] = "eager",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cuda",
    rows: Annotated[
        str | None, typer.Option(help="globs over row ids, or sets; smoke on a CPU, else production")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="write nothing: compare the pages with the ledger")] = False,
) -> None:
    """Writes the pages that the ledger has records for: the field's, and those of the ops that ship.

    With --check: exit status 1 where a page and the ledger disagree, or a record is of another task digest.
    """
    from kernwright.campaign.ledger import Ledger
    from kernwright.report.field import Field
    from kernwright.report.field_plots import plots_of
    from kernwright.report.results import Results
    from kernwright.report.results_page import FAMILY_FILE, files_of
    from kernwright.tasks.catalog import find_task, list_tasks

    tasks = [find_task(name) for name in list_tasks()]
    wanted = rows or ("smoke" if device == "cpu" else "production")
    book = Ledger(ledger)
    there = book.root.is_dir()
    field = Field.gathered(book, tasks, baseline, device, wanted) if there else None
    own = Results.gathered(book, tasks, device, wanted) if there else None
    told = f"kernwright results --ledger {book.root.name}"
    files: dict[Path, str] = {}
    gone: list[Path] = []
    stale: list[str] = []
    if field and (field.standings or field.stale):
        plots = plots_of(field)
        folder = page.with_suffix("")
        command = f"{told} --baseline {baseline} --device {device} --rows {wanted}"
        text = field.page(command, {name.removesuffix(".svg"): f"{folder.name}/{name}" for name in plots})
        files |= {page: text} | {folder / name: plot for name, plot in plots.items()}
        stale += field.stale
    if own and (own.standings or own.stale):
        files |= files_of(own, ours, f"{told} --device {device} --rows {wanted}")
        stale += own.stale
        gone = [path for task in tasks if (path := task.folder / FAMILY_FILE).is_file() and path not in files]
    if not files:
        raise KernwrightError(
            f"{book.root} holds no verdict of a sweep against {baseline}, nor of kernwright, on {device}",
            "run kernwright sweep first, or name another --ledger, --baseline or --device",
        )
    for record in stale:
        typer.echo(f"stale, of another task digest: {record}", err=True)
    if check:
        raise typer.Exit(1 if not agree(files, gone) or stale else 0)
    write_files(files)
    for path in gone:
        path.unlink()
    pages = [path for path in files if path.suffix == ".md"]
    typer.echo(f"{len(pages)} pages, {len(files) - len(pages)} plots: {', '.join(map(str, pages))}")


def agree(files: Mapping[Path, str], gone: list[Path]) -> bool:
    """Says of each file that is not what the ledger makes of it."""
    wrong = [path for path, wanted in files.items() if not says(path, wanted)]
    for path in wrong:
        state = "and the ledger disagree" if path.is_file() else "does not exist"
        typer.echo(f"{path} {state}; remedy: the same command without --check", err=True)
    for path in gone:
        typer.echo(f"{path} has no record in the ledger; remedy: the same command without --check", err=True)
    return not wrong and not gone


def says(path: Path, wanted: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == wanted


def write_files(files: Mapping[Path, str]) -> None:
    """All of them, and no plot that an earlier page had and this one has not."""
    for folder in {path.parent for path in files}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KernwrightError(f"{folder}: {error.strerror}", f"make {folder.parent} a writable folder") from None
    for folder in {path.parent for path in files if path.suffix == ".svg"}:
        for pattern in PLOTS:  # whatever else lies there is somebody's
            for left in folder.glob(pattern):
                if left not in files:
                    left.unlink()
    for path, text in files.items():
        write_whole(path, text, f"make {path.resolve().parent} a writable folder, or name another page")
