"""kernwright results: the page that a ledger's sweeps amount to, and whether it still says what the ledger says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.ledger import LedgerFolder
from kernwright.cli.output import write_whole
from kernwright.errors import KernwrightError


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
    text = field.page(command)
    for stale in field.stale:
        typer.echo(f"stale, of another task digest: {stale}", err=True)
    if not check:
        write_whole(page, text, f"make {page.resolve().parent} a writable folder, or name another --page")
        typer.echo(f"{page}: {len(field.standings)} rows of {len(field.contenders)} contenders")
        return
    agrees = page.is_file() and page.read_text(encoding="utf-8") == text
    if not agrees:
        state = "and the ledger disagree" if page.is_file() else "does not exist"
        typer.echo(f"{page} {state}; remedy: the same command without --check", err=True)
    raise typer.Exit(0 if agrees and not field.stale else 1)
