"""A verdict on a terminal: a table of the rows, the headline of each metric, and every reason once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernwright.advice.fault import FAULTS, faults_of
from kernwright.core.plain_text import plain, quoted
from kernwright.judge.record.verdict import (
    NOT_TIMED,
    UNDECIDED,
    Headline,
    MetricResult,
    RowVerdict,
    Unavailable,
    Verdict,
)
from kernwright.tasks.policy import METRICS, Metric

COLOURS = {
    "faster": "green", "same": "cyan", "slower": "red", "inconclusive": "yellow",
    "incorrect": "bold red", "tampered": "bold magenta", "failed": "bold red",
}  # fmt: skip
MOST_NAMED = 4  # rows that a reason names
MOST_NOTES = 6
INDENT = "    "


def verdict_title(verdict: Verdict) -> str:
    """Return the names of the candidate, the baseline and the task."""
    return f"{verdict.candidate} against {verdict.baseline} on {verdict.task}"


def verdict_table(verdict: Verdict) -> Table | None:
    """Return a table with a line per row; None if all rows have the same fault, which is told once below."""
    faults = faults_of(verdict)
    if len(faults) == 1 and len(faults[0].rows) == len(verdict.rows):
        return None
    decides = verdict.metric
    table = Table(title=f"{verdict_title(verdict)} ({decides} decides)")
    table.add_column("row", overflow="fold")
    table.add_column("verdict", overflow="fold")
    timed = any(isinstance(row.metrics.get(decides), MetricResult) for row in verdict.rows)
    for column in (f"{verdict.baseline} us", "candidate us", "speedup", "interval", "noise", "GB/s") if timed else ():
        table.add_column(column, justify="right", no_wrap=True)
    for row in verdict.rows:
        table.add_row(*_row_cells(row, decides)[: len(table.columns)])
    return table


def _row_cells(row: RowVerdict, decides: Metric) -> list[RenderableType]:
    named: list[RenderableType] = [plain(row.id), Text(row.verdict, style=COLOURS[row.verdict])]
    result = row.metrics.get(decides)
    if not isinstance(result, MetricResult):
        return [*named, *["–"] * 6]
    low, high = result.interval
    return [
        *named,
        f"{result.baseline_us:.1f}",
        f"{result.candidate_us:.1f}",
        f"{result.ratio:.3f}x",
        f"{low:.3f} – {high:.3f}",
        f"±{100 * result.noise_band:.1f} %",
        f"{row.bytes_min / result.candidate_us / 1e3:.2f}",
    ]


def verdict_lines(verdict: Verdict) -> list[Text]:
    """Return the lines below the table: a headline per metric, the verdict, its reasons and notes."""
    coloured = (verdict.verdict, COLOURS[verdict.verdict])
    return [
        *_headline_lines(verdict),
        Text.assemble("  verdict ", coloured, _marks(verdict)),
        *_admission_lines(verdict),
        *(Text(line) for line in (*reason_lines(verdict), *note_lines(verdict))),
    ]


def _admission_lines(verdict: Verdict) -> list[Text]:
    """Return a warning if wrong kernels may pass on the task of a verdict."""
    if not verdict.not_admitted:
        return []
    told = (
        f"  task    not admitted ({verdict.not_admitted}): wrong kernels may pass; kernwright task check {verdict.task}"
    )
    return [Text(plain(told), style="yellow")]


def _headline_lines(verdict: Verdict) -> list[Text]:
    """Return a line per metric, the deciding one first; none if the candidate is at fault, whose times mean nothing."""
    if verdict.verdict in FAULTS:
        return []
    lines = []
    missing: dict[str, list[str]] = {}
    for metric in sorted(METRICS, key=lambda name: name != verdict.metric):
        match verdict.headline.get(metric):
            case Headline() as headline:
                decides = "decides" if metric == verdict.metric else ""
                outcome = headline.outcome or "–"
                coloured = (f"{outcome:<12} ", COLOURS.get(outcome, "dim"))
                lines.append(Text.assemble(f"  {metric:<7} {decides:<8} ", coloured, _figures(headline)))
            case Unavailable(unavailable=why):
                missing.setdefault(why, []).append(metric)
    return lines + [Text(plain(f"  {', '.join(names)} not available: {why}"), "dim") for why, names in missing.items()]


def _figures(headline: Headline) -> str:
    interval = "({:.3f} – {:.3f})".format(*headline.interval) if headline.interval else "(coarse)"
    worst = f"worst {headline.worst_ratio:.3f}x {plain(headline.worst_row)}"
    undecided = f", {len(headline.undecided)} undecided" if headline.undecided else ""
    return f"{headline.geomean:.3f}x {interval} over {headline.rows} rows{undecided}, {worst}"


def reason_lines(verdict: Verdict) -> list[str]:
    """Return the reasons of a verdict as lines, each reason once: a build error holds for every row."""
    lines = []
    for fault in faults_of(verdict):
        lines += fault_lines(_rows_of(verdict, fault.rows), fault.reason)
    told = {row.reasons[0] for row in verdict.rows if row.verdict in FAULTS and row.reasons}
    others = [reason for reason in verdict.reasons if not any(reason.endswith(f": {known}") for known in told)]
    lines += [line for reason in others if not reason.startswith(UNDECIDED) for line in quoted(reason, INDENT)]
    return lines + _undecided_lines(verdict)


def _undecided_lines(verdict: Verdict) -> list[str]:
    """Return the id of every undecided row, with its reasons."""
    found: dict[str, list[str]] = {}
    for row in verdict.rows:
        if row.verdict == "inconclusive" and NOT_TIMED.isdisjoint(row.reasons):
            found.setdefault("; ".join(row.reasons) or "no reason was recorded", []).append(row.id)
    if not found:
        return []
    count = sum(map(len, found.values()))
    lines = [f"{', '.join(ids)}: {reason}" for reason, ids in found.items()]
    return [f"{INDENT}{UNDECIDED} {count} of {len(verdict.rows)} rows:", *(plain(f"{INDENT}  {own}") for own in lines)]


def note_lines(verdict: Verdict) -> list[str]:
    """Return remarks that do not change the verdict: further reasons of rows, and the calls of a process."""
    decided = [row for row in verdict.rows if row.verdict not in (*FAULTS, "inconclusive")]
    notes = _grouped_notes(verdict, decided)
    if calls := max((row.process_calls for row in verdict.rows), default=0):
        notes.append(f"a process of the candidate made up to {calls:,} calls")
    left_out = [f"{len(notes) - MOST_NOTES} further notes are in the ledger"] if len(notes) > MOST_NOTES else []
    return [plain(f"{INDENT}note: {note}") for note in (*notes[:MOST_NOTES], *left_out)]


def _grouped_notes(verdict: Verdict, rows: Sequence[RowVerdict]) -> list[str]:
    """Return each reason once, with its rows. Reasons that differ only in figures are one note.

    Notes on the most rows come first.
    """
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        for reason in row.reasons:
            found.setdefault(re.sub(r"\d+", "#", reason), {})[row.id] = reason
    notes = []
    for by_row in sorted(found.values(), key=len, reverse=True):
        example, *others = dict.fromkeys(by_row.values())
        figures = " (figures of the first row)" if others else ""
        notes.append(f"{_rows_of(verdict, list(by_row))}: {example}{figures}")
    return notes


def _rows_of(verdict: Verdict, ids: Sequence[str]) -> str:
    return f"all {len(ids)} rows" if len(ids) == len(verdict.rows) > 1 else named_rows(ids)


def named_rows(ids: Sequence[str]) -> str:
    """Return the first rows by name and the number of further ones."""
    further = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(ids[:MOST_NAMED]) + further


def fault_lines(what: str, reason: str, indent: str = INDENT) -> list[str]:
    """Return a reason as lines. Lines after the first are foreign text behind a gutter."""
    first, _, rest = reason.partition("\n")
    return [plain(f"{indent}{what}: {first}"), *(quoted(rest, f"{indent}  | ") if rest else ())]


def _marks(verdict: Verdict) -> str:
    if verdict.interrupted:
        return "  (interrupted)" if verdict.evidence else "  (interrupted: not evidence)"
    return "  (quick: not evidence)" if verdict.quick else ""
