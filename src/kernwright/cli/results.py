"""kernwright results: the page that a ledger's sweeps amount to, and whether it still says what the ledger says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.ledger import LedgerFolder


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
    field = Field.gathered(
        Ledger(ledger), tasks, baseline, device, rows or ("smoke" if device == "cpu" else "production")
    )
    text = field.page(f"kernwright results --page {page.name} --baseline {baseline} --device {device}")
    for stale in field.stale:
        typer.echo(f"stale, of another task digest: {stale}", err=True)
    if not check:
        page.write_text(text, encoding="utf-8")
        typer.echo(f"{page}: {len(field.standings)} rows of {len(field.contenders)} contenders")
        return
    agrees = page.is_file() and page.read_text(encoding="utf-8") == text
    if not agrees:
        typer.echo(f"{page} and the ledger disagree; remedy: kernwright results --page {page}", err=True)
    raise typer.Exit(0 if agrees and not field.stale else 1)
