"""``kernwright ledger``: look at the evidence, check it, carry it between machines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernwright.cli.arguments import complete_runs
from kernwright.cli.output import say
from kernwright.core.errors import LedgerError
from kernwright.core.plain_text import plain

if TYPE_CHECKING:
    from rich.table import Table

    from kernwright.ledger.ledger import Ledger
    from kernwright.ledger.record import Record
    from kernwright.report.scoreboard.score import Score

app = typer.Typer(help="Show, verify, recompute and transfer recorded evidence.", no_args_is_help=True)

RunIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN]...", help="runs; default: all", autocompletion=complete_runs),
]
LedgerFolder = Annotated[
    Path | None,
    typer.Option("--ledger", help="ledger folder or archive; default: KERNWRIGHT_LEDGER, else .kernwright/ledger"),
]


def _named(value: Any, keys: tuple[str, ...]) -> str:
    """Return the name in a field of a record, which is a string or an object that holds one."""
    if isinstance(value, dict):
        value = next((value[key] for key in keys if isinstance(value.get(key), str)), "")
    return value if isinstance(value, str) else ""


def _task(record: Record) -> str:
    return _named(record.body.get("task"), ("name", "family", "id", "digest"))


def _verdict(record: Record) -> str:
    return _named(record.body.get("verdict") or record.body.get("outcome"), ("outcome", "verdict", "overall"))


def _chosen(ledger: Ledger, runs: list[str] | None) -> list[str]:
    """Return the ids of the given runs, or of all runs."""
    return sorted({ledger.find_run(run) for run in runs}) if runs else ledger.runs()


def _summary(ledger: Ledger, run: str) -> dict[str, Any]:
    """Return a summary of one run; of a damaged run, the damage."""
    try:
        records = ledger.records(run)
    except LedgerError as error:
        return {"run": run, "damaged": error.cause}
    tasks = sorted({task for record in records if (task := _task(record))})
    kinds = dict(sorted(Counter(record.kind for record in records).items()))
    return {"run": run, "records": len(records), "kinds": kinds, "tasks": tasks, "last": records[-1].time}


def _runs_table(summaries: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table("run", "records", "last", "tasks", "kinds")
    table.columns[0].no_wrap = True
    for summary in summaries:
        if "damaged" in summary:
            table.add_row(plain(summary["run"]), "?", "?", "", plain("damaged: see `kernwright ledger verify`"))
            continue
        kinds = ", ".join(f"{count} {kind}" for kind, count in summary["kinds"].items())
        cells = (summary["run"], summary["records"], summary["last"][:19], ", ".join(summary["tasks"]), kinds)
        table.add_row(*map(plain, cells))
    return table


def _records_table(records: list[Record]) -> Table:
    from rich.table import Table

    table = Table("run", "seq", "kind", "time", "task", "verdict")
    table.columns[0].no_wrap = True
    for record in records:
        cells = (record.run, record.seq, record.kind, record.time[:19], _task(record), _verdict(record))
        table.add_row(*map(plain, cells))
    return table


@app.command()
def show(
    run: Annotated[
        str | None, typer.Argument(help="run id, or a unique part of one", autocompletion=complete_runs)
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="only records of this kind")] = None,
    runs: Annotated[bool, typer.Option("--runs", help="list all runs and the kinds of their records")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
    ledger: LedgerFolder = None,
) -> None:
    """Show the verdicts as a scoreboard with the best candidate so far, or the records of one run or of one kind."""
    from kernwright.cli.console import out
    from kernwright.ledger.ledger import Ledger

    book = Ledger.existing(ledger)
    if run is None and kind is None:
        if as_json:
            _print_json(book)
        elif not book.runs():
            say(f"no runs in {book.root}")
        elif runs:
            out.print(_runs_table([_summary(book, known) for known in book.runs()]))
        else:
            _print_scoreboard(book)
        return
    source = book.records(book.find_run(run)) if run is not None else book.all_records()
    records = [record for record in source if kind is None or record.kind == kind]
    if as_json:
        for record in records:
            say(json.dumps(record.model_dump()))
    elif records:
        out.print(_records_table(records))
    else:
        say(f"no records of kind {kind!r} in {book.root}")


def _print_scoreboard(book: Ledger) -> None:
    """Print the scoreboard, then the runs that are not on it. A damaged run must not hide the others."""
    from kernwright.cli.console import out
    from kernwright.report.scoreboard.scoreboard import scoreboard

    scores, damaged = _scores(book)
    for table in scoreboard([score for own in scores.values() for score in own]):
        out.print(table)
    for run, cause in damaged.items():
        say(f"{run} is damaged: {cause}; see `kernwright ledger verify`")
    if without := sum(not own for own in scores.values()):
        say(f"{without} run(s) without a verdict; see `kernwright ledger show --runs`")


def _print_json(book: Ledger) -> None:
    """Print one object per run: its records and its verdicts."""
    from kernwright.report.scoreboard.score import best_scores

    scores, _ = _scores(book)
    best = best_scores(score for own in scores.values() for score in own)
    for run in book.runs():
        own = [score.as_record(score in best) for score in scores.get(run, ())]
        say(json.dumps(_summary(book, run) | {"verdicts": own}))


def _scores(book: Ledger) -> tuple[dict[str, list[Score]], dict[str, str]]:
    """Return the scores of each sound run, and the cause of each damaged one."""
    from kernwright.report.scoreboard.score import scores_of

    scores: dict[str, list[Score]] = {}
    damaged: dict[str, str] = {}
    for run in book.runs():
        try:
            scores[run] = scores_of(book, run)
        except LedgerError as error:
            damaged[run] = error.cause
    return scores, damaged


@app.command()
def verify(ledger: LedgerFolder = None) -> None:
    """Check that no record, head or blob was changed.

    Exit status 0: nothing was changed; 1: something was, with one line per problem.
    """
    from kernwright.ledger.ledger import default_ledger_root
    from kernwright.ledger.verify import examine

    root = ledger or default_ledger_root()
    result = examine(root)
    for note in result.notes:
        say(f"note: {note}")
    for problem in result.problems:
        say(str(problem))
    if result.problems:
        say(f"{root}: {len(result.problems)} problem(s)")
        raise typer.Exit(1)
    records = sum(summary.records for summary in result.runs.values())
    say(f"{root}: sound, {len(result.runs)} run(s), {records} record(s)")


@app.command()
def recompute(ledger: LedgerFolder = None) -> None:
    """Derive every verdict again from its samples.

    Exit status 0: all figures agree; 1: some differ, with one line per figure.
    """
    from kernwright.judge.record.recompute import recompute as derive
    from kernwright.ledger.ledger import Ledger

    book = Ledger.existing(ledger)
    found = derive(book)
    for run, reason in found.underivable.items():
        say(f"not derivable: {run}: {reason}")
    for difference in found.differences:
        say(str(difference))
    derived = found.verdicts - len(found.underivable)
    say(
        f"{book.root}: {derived} of {found.verdicts} verdict(s) derived again from the samples of {found.rows} row(s): "
        f"{len(found.differences)} difference(s); {len(found.underivable)} verdict(s) not derivable"
    )
    if found.differences:
        raise typer.Exit(1)


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="archive or ledger folder")],
    but: Annotated[list[str] | None, typer.Option("--but", help="run to leave out; repeatable")] = None,
    ledger: LedgerFolder = None,
) -> None:
    """Verify the runs of another ledger and add them to this one."""
    from kernwright.ledger.ledger import default_ledger_root
    from kernwright.ledger.transfer import import_runs

    root = ledger or default_ledger_root()
    report = import_runs(root, source, but=but or ())
    for outcome, runs in (
        ("added", report.added),
        ("extended", report.extended),
        ("unchanged", report.unchanged),
    ):
        for run in runs:
            say(f"{outcome} {run}")


@app.command()
def pack(
    archive: Annotated[Path, typer.Argument(help=".tar.xz file to write")],
    runs: RunIds = None,
    ledger: LedgerFolder = None,
) -> None:
    """Write runs to a compact archive, with a file of their heads beside it."""
    from kernwright.ledger.ledger import Ledger
    from kernwright.ledger.transfer import pack_runs

    book = Ledger.existing(ledger)
    chosen = _chosen(book, runs)
    pack_runs(book.root, chosen, archive)
    say(f"{archive}: {len(chosen)} run(s), {archive.stat().st_size} bytes")


@app.command()
def export(
    archive: Annotated[Path, typer.Argument(help=".tar.gz file to write")],
    runs: RunIds = None,
    ledger: LedgerFolder = None,
) -> None:
    """Write runs, with their blobs and heads, to one archive."""
    from kernwright.ledger.ledger import Ledger
    from kernwright.ledger.transfer import export_runs

    book = Ledger.existing(ledger)
    chosen = _chosen(book, runs)
    export_runs(book.root, chosen, archive)
    say(f"{archive}: {len(chosen)} run(s)")
