"""kernwright results: the page that a ledger's sweeps amount to, and whether it still says what the ledger says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.ledger import LedgerFolder
from kernwright.cli.output import write_whole
from kernwright.errors import KernwrightError

KINDS = ("speedup", "copy")


def results(
    ledger: LedgerFolder = None,
    page: Annotated[Path, typer.Option(help="the page to write, or to check")] = Path("docs/field.md"),
    baseline: Annotated[str, typer.Option(help="what all were compared with")] = "eager",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cuda",
    rows: Annotated[
        str | None, typer.Option(help="globs over row ids, or sets; smoke on a CPU, else production")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="write nothing: compare the page with the ledger")] = False,
) -> None:
    """Writes the state of the field. With --check: exit status 1 where page and ledger disagree, or one is stale."""
    from kernwright.campaign.ledger import Ledger
    from kernwright.report.field import Field
    from kernwright.report.field_plots import plots_of
    from kernwright.tasks.catalog import find_task, list_tasks

    tasks = [find_task(name) for name in list_tasks()]
    wanted = rows or ("smoke" if device == "cpu" else "production")
    book = Ledger(ledger)
    field = Field.gathered(book, tasks, baseline, device, wanted) if book.root.is_dir() else None
    if field is None or not (field.standings or field.stale):
        raise KernwrightError(
            f"{book.root} holds no verdict of a sweep against {baseline} on {device}",
            "run kernwright sweep first, or name another --ledger, --baseline or --device",
        )
    command = f"kernwright results --ledger {book.root.name} --baseline {baseline} --device {device} --rows {wanted}"
    plots = plots_of(field)
    folder = page.with_suffix("")
    text = field.page(command, {name.removesuffix(".svg"): f"{folder.name}/{name}" for name in plots})
    for stale in field.stale:
        typer.echo(f"stale, of another task digest: {stale}", err=True)
    if not check:
        remedy = f"make {page.resolve().parent} a writable folder, or name another --page"
        write_plots(folder, plots, remedy)
        write_whole(page, text, remedy)
        typer.echo(
            f"{page}: {len(field.standings)} rows of {len(field.contenders)} contenders, {len(plots)} plots in {folder}"
        )
        return
    wrong = [
        path for path, wanted in ((page, text), *((folder / n, p) for n, p in plots.items())) if not says(path, wanted)
    ]
    for path in wrong:
        state = "and the ledger disagree" if path.is_file() else "does not exist"
        typer.echo(f"{path} {state}; remedy: the same command without --check", err=True)
    raise typer.Exit(1 if wrong or field.stale else 0)


def says(path: Path, wanted: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == wanted


def write_plots(folder: Path, plots: Mapping[str, str], remedy: str) -> None:
    """All of them, and none that an earlier page had and this one has not."""
    if plots:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KernwrightError(f"{folder}: {error.strerror}", remedy) from None
    for name, plot in plots.items():
        write_whole(folder / name, plot, remedy)
    for kind in KINDS:  # whatever else lies there is somebody's
        for left in folder.glob(f"*_{kind}.svg"):
            if left.name not in plots:
                left.unlink()
