"""The page of comparisons: milestone bars, published campaigns, and times that were taken by hand."""

from __future__ import annotations

from comparisons import kda_pilot
from comparisons.bars import ASKED_OF, bars_of
from comparisons.graph_replays import JudgedTime, Replay, graph_replays
from kernwright.report.field.field import Field
from kernwright.report.machines import machines_of, model_of
from kernwright.report.results.results import Results

BARS = f"""\
A target covers every production row of the families that were captured from models: {", ".join(ASKED_OF)}.
The last two also cover the rows of their grids. Only records of the current sources and baselines count. A target is
not met until all rows are judged; the last column says how many are.

Two more figures have a target, but the judge does not measure them: the host time of a call, and the time of the first
call with its imports. `python benchmarks/bench_ops.py` measures both on a GPU."""


def page_of(results: Results, field: Field, command: str) -> str:
    """Return the page of a ledger's records.

    Args:
        results: the records of the ops that ship.
        field: the records of the baselines.
        command: the command that makes the page.
    """
    lines = ["# Comparisons", "", f"Generated from a ledger by `{command}`; no number is typed by hand.", ""]
    lines += [f"- {machine}" for machine in machines_of([*results.runs(), *field.runs()])]
    lines += [
        "",
        "[results.md](results.md#how-to-read-the-tables) explains the figures.",
        "",
        "## Performance targets of the modulations and norms",
        "",
    ]
    lines += ["| figure | target | measured | state |", "|---|---|---|---|"]
    lines += [f"| {bar.figure} | {bar.asked} | {bar.measured} | {bar.verdict} |" for bar in bars_of(results)]
    lines += ["", BARS, "", "## KDA-Pilot", "", *kda_pilot.introduction(), "", *kda_pilot.family_table(results)]
    for task in results.families:
        if rows := kda_pilot.row_table(results, task):
            lines += ["", f"### {task.name}", "", *rows]
    if replays := _replays(field):
        lines += ["", "## Times taken by hand", "", *replays]
    return "\n".join(lines) + "\n"


def _replays(field: Field) -> list[str]:
    """Return the section of the times taken by hand, if the field is of the same GPU model."""
    known = graph_replays()
    if {model_of(run) for run in field.runs()} != {known.gpu}:
        return []
    repeats = field.repeats()

    def judged(replay: Replay) -> JudgedTime | None:
        task = next((task for task in field.tasks if task.name == replay.task), None)
        standing = field.standing(task, replay.row, replay.contender) if task else None
        result = standing.result("device") if standing else None
        if standing is None or result is None:
            return None
        runs_apart = repeats.most_apart(replay.contender, replay.task)
        return JudgedTime(result.candidate_us, standing.row.bytes_min, runs_apart)

    return known.beside(judged)
