"""A verdict on a terminal: a table of the rows, the headline of each metric, and every reason once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernwright.core.plain_text import plain, quoted
from kernwright.judge.process.faults import AT
from kernwright.judge.record.verdict import Headline, MetricResult, Outcome, RowVerdict, Unavailable, Verdict
from kernwright.tasks.policy import METRICS

COLOURS = {
    "faster": "green", "same": "cyan", "slower": "red", "inconclusive": "yellow",
    "incorrect": "bold red", "tampered": "bold magenta", "failed": "bold red",
}  # fmt: skip
FAULTS = ("incorrect", "tampered", "failed")
MOST_NAMED = 4  # rows that a reason names
INDENT = "    "


def verdict_title(verdict: Verdict) -> str:
    """Return the names of the candidate, the baseline and the task."""
    return f"{verdict.candidate} against {verdict.baseline} on {verdict.task}"


def verdict_table(verdict: Verdict) -> Table | None:
    """Return a table with a line per row; None if all rows have the same fault, which is told once below."""
    faults = faults_of(verdict)
    if len(faults) == 1 and len(faults[0].rows) == len(verdict.rows):
        return None
    decides = verdict.provenance["policy"]["decides"]
    table = Table(title=f"{verdict_title(verdict)} ({decides} decides)")
    table.add_column("row", overflow="fold")
    table.add_column("verdict", overflow="fold")
    timed = any(isinstance(row.metrics.get(decides), MetricResult) for row in verdict.rows)
    for column in (f"{verdict.baseline} us", "candidate us", "speedup", "interval", "noise", "GB/s") if timed else ():
        table.add_column(column, justify="right", no_wrap=True)
    for row in verdict.rows:
        table.add_row(*_row_cells(row, decides)[: len(table.columns)])
    return table


def _row_cells(row: RowVerdict, decides: str) -> list[RenderableType]:
    named: list[RenderableType] = [plain(row.id), Text(row.verdict, style=COLOURS[row.verdict])]
    result = row.metrics.get(decides)  # type: ignore[call-overload]
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
    """Return the lines below the table: headlines, the verdict, its reasons."""
    coloured = (verdict.verdict, COLOURS[verdict.verdict])
    return [
        *_headline_lines(verdict),
        Text.assemble("  verdict ", coloured, _marks(verdict)),
        *(Text(line) for line in reason_lines(verdict)),
    ]


def _headline_lines(verdict: Verdict) -> list[Text]:
    lines = []
    missing: dict[str, list[str]] = {}
    for metric in METRICS:
        match verdict.headline.get(metric):
            case Headline() as headline:
                outcome = headline.outcome or "–"
                coloured = (f"{outcome:<12} ", COLOURS.get(outcome, "dim"))
                lines.append(Text.assemble(f"  {metric:<7} ", coloured, _figures(headline)))
            case Unavailable(unavailable=why):
                missing.setdefault(why, []).append(metric)
    return lines + [Text(plain(f"  {', '.join(names)} not available: {why}"), "dim") for why, names in missing.items()]


def _figures(headline: Headline) -> str:
    interval = "({:.3f} – {:.3f})".format(*headline.interval) if headline.interval else "(coarse)"
    worst = f"worst {headline.worst_ratio:.3f}x {plain(headline.worst_row)}"
    undecided = f", undecided: {', '.join(map(plain, headline.undecided))}" if headline.undecided else ""
    return f"geomean {headline.geomean:.3f}x {interval} over {headline.rows} rows, {worst}{undecided}"


class Fault(NamedTuple):
    """Rows that are incorrect, tampered with or failed for one reason."""

    outcome: Outcome
    reason: str  # of the first row; others may differ in the sizes that it names
    rows: list[str]


def faults_of(verdict: Verdict) -> list[Fault]:
    """Return the faults of a verdict, each once. Errors that were raised at the same place are one fault."""
    found: dict[tuple[Outcome, str], Fault] = {}
    for row in verdict.rows:
        if row.verdict in FAULTS:
            reason = row.reasons[0] if row.reasons else "no reason was recorded"
            frames = "\n".join(line for line in reason.split("\n") if line.startswith(AT))
            found.setdefault((row.verdict, frames or reason), Fault(row.verdict, reason, [])).rows.append(row.id)
    return list(found.values())


def reason_lines(verdict: Verdict) -> list[str]:
    """Return the reasons of a verdict as lines, each reason once: a build error holds for every row."""
    lines = []
    for fault in faults_of(verdict):
        all_rows = len(fault.rows) == len(verdict.rows) > 1
        lines += fault_lines(f"all {len(fault.rows)} rows" if all_rows else named_rows(fault.rows), fault.reason)
    told = {row.reasons[0] for row in verdict.rows if row.verdict in FAULTS and row.reasons}
    others = (reason for reason in verdict.reasons if not any(reason.endswith(f": {known}") for known in told))
    return lines + [line for reason in others for line in quoted(reason, INDENT)]


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
