"""Tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernwright.admission.admission import Admission
from kernwright.campaign.sweep import Sweep
from kernwright.exploits.trial import ExploitTrial
from kernwright.judge.checks.verification import RowFinding
from kernwright.report.verdict_table import COLOURS


def admission_table(admission: Admission, unchecked: Sequence[str] = ()) -> RenderableType:
    """Return the table of an admission, and the result below it.

    Args:
        unchecked: rows or ops of the task that were left out; then the task as a whole is not called admitted.
    """
    table = Table(title=f"admission of {admission.task}", caption=f"digest {admission.digest}")
    for column in ("op", "mutant", "rows", "verdict", "why"):
        table.add_column(column, overflow="fold")
    for trial in admission.trials:
        verdict = Text("rejected", style="green") if trial.rejected else Text("survives", style="bold red")
        why = trial.rejected_because if trial.rejected else f"passes on {', '.join(trial.survived[:3])}"
        table.add_row(trial.op, trial.mutant, str(trial.rows), verdict, why)
    last = [
        Text(f"  the reference itself fails: {problem}", style="bold red") for problem in admission.reference_problems
    ]
    last += [Text(f"  change {remedy}") for remedy in admission.remedies]
    word = ("admitted", "green") if admission.admitted else ("refused", "bold red")
    if unchecked and admission.admitted:
        return Group(table, *last, Text(f"  these rows reject every mutant; not checked: {', '.join(unchecked)}"))
    return Group(table, *last, Text.assemble("  task ", word))


MOST_FINDINGS = 300  # above this, only rows with a problem are listed
FINDING_COLOURS = {
    "agrees": "green", "declines": "cyan", "rounds": "yellow", "differs": "bold red", "failed": "bold red",
}  # fmt: skip


def findings_table(findings: Sequence[RowFinding], counted: bool) -> RenderableType:
    """Return a table with a line per row and baseline, and the counts below. Of many rows only problems are listed.

    Args:
        counted: whether kernels were listed.
    """
    is_long = len(findings) > MOST_FINDINGS
    listed = [found for found in findings if not is_long or found.finding not in ("agrees", "declines")]
    table = Table(title="baselines against the reference")
    for column in ("baseline", "row", "finding", "why"):
        table.add_column(column, overflow="fold", no_wrap=column in ("baseline", "finding"))
    for found in listed:
        shown = Text(found.finding, style=FINDING_COLOURS[found.finding])
        table.add_row(found.baseline, f"{found.task}/{found.row}", shown, Text(found.reason))
    counts: Counter[str] = Counter(found.finding for found in findings)
    lines = ["  " + ", ".join(f"{counts[word]} {word}" for word in FINDING_COLOURS)]
    if is_long:
        lines.append("  rows that agree or are declined are not listed")
    if not counted:
        lines.append("  no census on a CPU: which kernels ran is known on a GPU only")
    return Group(*([table] if listed else []), *(Text(line) for line in lines))


def sweep_table(sweep: Sweep) -> RenderableType:
    """Return a table with the progress and the verdicts of each leg, and the rows that could not be judged below."""
    table = Table(title=f"{sweep.rows} rows on {sweep.device}")
    for column in ("task", "contender", "against"):
        table.add_column(column, no_wrap=True)
    table.add_column("judged", justify="right")
    table.add_column("verdicts")
    for leg in sweep.legs:
        rows = {row.id: row.verdict for verdict in sweep.verdicts(leg) for row in verdict.rows}
        wanted = [row.id for row in leg.rows(sweep.rows)]
        found = Counter(rows[id_] for id_ in wanted if id_ in rows)
        told = Text(", ").join(Text(f"{count} {name}", style=COLOURS[name]) for name, count in found.most_common())
        judged = f"{sum(found.values())} of {len(wanted)}"
        table.add_row(leg.task.name, leg.contender.name, leg.baseline.name, judged, told)
    causes: dict[str, list[str]] = {}
    for (label, id_), why in sweep.troubles.items():
        causes.setdefault(why, []).append(f"{label}, {id_}")
    lines = [Text(f"{places[0]}{_and_more(places)}: {why}", style="red") for why, places in causes.items()]
    left_out = [(leg.task.name, leg.skipped(row)) for leg in sweep.legs for row in leg.task.matching(sweep.rows)]
    counted = Counter((task, reason) for task, reason in left_out if reason)
    lines += [Text(f"{task}: {count} rows left out: {reason}") for (task, reason), count in counted.items()]
    return Group(table, *lines)


def _and_more(places: Sequence[str]) -> str:
    return f" and {len(places) - 1} more" if len(places) > 1 else ""


def corpus_table(trials: Sequence[ExploitTrial]) -> RenderableType:
    """Return a table with a line per trial: the answers of the naive harness and of the judge, and the reason."""
    table = Table(title="the exploit corpus")
    for column in ("candidate", "what it attacks", "class", "naive harness", "judge", "because"):
        table.add_column(column, overflow="fold", no_wrap=column in ("candidate", "class", "judge"))
    for trial in trials:
        believed = "–" if trial.believed is None else "believes" if trial.believed else "doubts"
        style = "bold red" if trial.judge_was_fooled or trial.was_accused else COLOURS.get(trial.ending, "yellow")
        shown = Text(trial.ending, style=style)
        classes = "".join(trial.entry.about.classes) or trial.entry.kind
        table.add_row(trial.entry.name, Text(trial.entry.title), classes, believed, shown, Text(trial.reason))
    return Group(table, *(Text(f"  {line}") for line in _corpus_counts(trials)))


def _corpus_counts(trials: Sequence[ExploitTrial]) -> list[str]:
    attacks = [trial for trial in trials if trial.entry.kind == "attack"]
    honest = [trial for trial in trials if trial.entry.kind == "honest"]
    fooled = [trial.entry.name for trial in attacks if trial.judge_was_fooled]
    accused = [trial.entry.name for trial in honest if trial.was_accused]
    otherwise = [trial.entry.name for trial in attacks if trial.ended_otherwise]
    lines = [
        f"{len(attacks)} attacks: {sum(bool(trial.believed) for trial in attacks)} fool the naive harness, "
        f"{len(fooled)} the judge" + (f" ({', '.join(fooled)})" if fooled else ""),
        f"{len(honest)} honest candidates: {len(accused)} accused" + (f" ({', '.join(accused)})" if accused else ""),
    ]
    if otherwise:
        lines.append(f"stopped, but not where they must be: {', '.join(otherwise)}")
    return lines
