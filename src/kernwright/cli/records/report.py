"""``kernwright report``: the verdicts of a ledger as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import complete_runs
from kernwright.cli.output import say
from kernwright.cli.records.ledger import LedgerFolder
from kernwright.core.errors import KernwrightError, LedgerError

if TYPE_CHECKING:
    from kernwright.judge.record.verdict import Verdict
    from kernwright.ledger.ledger import Ledger


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="runs; default: all with a verdict", autocompletion=complete_runs),
    ] = None,
    ledger: LedgerFolder = None,
    out: Annotated[Path, typer.Option("--out", help="the HTML file to write")] = Path("kernwright-report.html"),
    campaign: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="campaign of this repository to write a page of, in place of verdicts"),
    ] = None,
) -> None:
    """Write verdicts, with their plots, figures and provenance, to one self-contained HTML page.

    With --campaign, write the page of a campaign: trajectory, ideas next to outcomes, counters, kept versions.
    """
    if campaign is not None:
        _write_campaign(campaign, runs, ledger, out)
        return
    from kernwright.ledger.ledger import Ledger
    from kernwright.report.verdict_page import write_page

    book = Ledger.existing(ledger)
    verdicts = _named(book, runs) if runs else _all(book)
    if not verdicts:
        raise LedgerError(
            f"no run in {book.root} has a verdict", "judge a candidate first, or name another ledger with --ledger"
        )
    write_page(verdicts, out, "Kernwright: verdicts")
    say(f"{out}: {len(verdicts)} verdict(s)")


def _write_campaign(name: str, runs: list[str] | None, ledger: Path | None, out: Path) -> None:
    from kernwright.campaign.lookup import find_campaign
    from kernwright.report.campaign.page import write_campaign_page

    if runs or ledger:
        raise KernwrightError("--campaign takes no runs and no --ledger", "the campaign knows its ledger")
    campaign = find_campaign(name)
    history = campaign.history()
    write_campaign_page(campaign, history, out)
    say(f"{out}: {len(history.iterations)} iteration(s)")


def _named(book: Ledger, runs: list[str]) -> list[Verdict]:
    """Return the verdicts of the named runs. Each run must have one."""
    verdicts: list[Verdict] = []
    for run in dict.fromkeys(book.find_run(run) for run in runs):
        found = _verdicts(book, run)
        if not found:
            raise LedgerError(
                f"run {run} has no verdict", "the run stopped early or is of another kind: leave it out, or judge again"
            )
        verdicts += found
    return verdicts


def _all(book: Ledger) -> list[Verdict]:
    """Return all verdicts. Print the runs that are damaged and therefore left out."""
    verdicts: list[Verdict] = []
    for run in book.runs():
        try:
            verdicts += _verdicts(book, run)
        except LedgerError as error:
            say(f"left out run {run}: {error}", err=True)
    return verdicts


def _verdicts(book: Ledger, run: str) -> list[Verdict]:
    from kernwright.judge.record.recorded import recorded_bodies

    return [record.verdict() for record in recorded_bodies(book, runs=[run])]
