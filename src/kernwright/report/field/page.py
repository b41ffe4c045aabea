"""The pages of the field: a summary of all families, and a page for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernwright.report import reading
from kernwright.report.field.field import DECLINED, DECLINES, Field, Side, Standing
from kernwright.report.field.plots import SUMMARY_PLOT, plots_of
from kernwright.report.field.summary import FieldSummary, OwnStanding
from kernwright.report.machines import machines_of
from kernwright.report.markdown import (
    ABSENT,
    contents,
    escaped,
    image,
    path_from,
    ratio_text,
    share_text,
    speedup,
    table,
)
from kernwright.report.row_ids import id_legend, rows_table
from kernwright.report.variants import variants_of
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

SECTIONS = ("Families", "How to read the tables", "Row ids", "How well the times repeat")
BEST = """\
- The **best** implementation of a row is the one with the shortest `device` time, or the shortest `stream` time if
  there is no `device` time. It may be the baseline. In the summary, `device`, `stream` and `wall` are geometric means
  over the rows. The best implementation of a row is chosen for each of the three times."""
CELLS = """\
A contender's cell has its `device`, `stream` and `wall` time, the ratio with its interval (in `device`, or in `stream`
if there is no `device` time), and its share of a copy."""
KINDS = {"speedup": "speedup of each contender", "copy": "share of a copy"}


def field_files(
    field: Field, page: Path, command: str, ours: Mapping[str, OwnStanding] | None = None
) -> dict[Path, str]:
    """Return every page and plot of the field by its path.

    Args:
        field: the standings of the baselines.
        page: the path of the summary page; the other files are in the folder of the same name.
        command: the command that makes the pages.
        ours: by task name, the standing of our ops against the same baseline, if they were judged.
    """
    folder, own = page.with_suffix(""), ours or {}
    summaries = [FieldSummary.of(field, task) for task in field.families]
    plots = {folder / name: text for name, text in plots_of(field, summaries, own).items()}
    files = {page: _summary_page(field, summaries, own, page, command, plots)} | plots
    for task in field.families:
        files[family_page_of(task, page)] = _family_page(field, task, page, command, plots)
    return files


def family_page_of(task: Task, summary: Path) -> Path:
    """Return the path of a family's page, in the folder that belongs to the summary."""
    return summary.with_suffix("") / f"{task.name}.md"


def _opening(field: Field, command: str) -> list[str]:
    machines = [f"- {escaped(machine)}" for machine in machines_of(field.runs())]
    return [f"Generated from a ledger by `{command}`; no number is typed by hand.", "", *machines]


def _summary_page(
    field: Field,
    summaries: Sequence[FieldSummary],
    ours: Mapping[str, OwnStanding],
    page: Path,
    command: str,
    plots: Mapping[Path, str],
) -> str:
    lines = ["# The state of the field", "", *_opening(field, command), "", _about(field)]
    if place := next((path for path in plots if path.name == SUMMARY_PLOT), None):
        lines += image(f"speedup of each implementation over {field.baseline}, by family", path_from(page, place))
    lines += ["", *_summary_table(field, summaries, ours, page), "", "Contents:", "", *contents(SECTIONS)]
    lines += ["", f"## {SECTIONS[0]}", ""]
    for own in summaries:
        link = f"[{own.task.name}]({path_from(page, family_page_of(own.task, page))})"
        lines.append(f"- {link}: {escaped(own.task.file.title)}. {own.judged} of {own.wanted} rows judged.")
    rows = [row for task in field.families for row in field.wanted(task)]
    lines += ["", f"## {SECTIONS[1]}", "", _reading(field, bool(ours))]
    lines += ["", f"## {SECTIONS[2]}", "", "Each family's page lists the shapes and dtypes of its rows.", ""]
    lines += [*id_legend(rows), "", f"## {SECTIONS[3]}", "", *_repeats(field)]
    return "\n".join(lines) + "\n"


def _about(field: Field) -> str:
    return (
        f"This page compares the kernels that people run today with `{field.baseline}`, on frozen calls of real\n"
        "models. The judge checked the outputs of each contender. Then it timed contender and "
        "baseline in turn, in one run."
    )


def _reading(field: Field, with_ours: bool) -> str:
    lines = [
        reading.ROW,
        "- A **contender** is a published implementation.",
        reading.ratios(f"the time of `{field.baseline}`", "the contender's", "the contender"),
        reading.TIMES,
        BEST,
        reading.COPY,
        reading.declined("the contender"),
    ]
    if with_ours:
        lines.append(f"- **{SHIPPED}** is `kernwright.ops` of this package against `{field.baseline}`, by `device`.")
    if field.device != "cpu":
        lines.append(
            "- With more than 16 MiB of inputs, the worker is idle before a call, so `wall` includes a slower start."
        )
    if given := {run.provenance.get("rounds") or run.provenance["policy"]["max_rounds"] for run in field.runs()}:
        lines.append(f"- A row was timed in at most {' or '.join(map(str, sorted(given)))} rounds.")
    return "\n".join(lines)


def _summary_table(
    field: Field, summaries: Sequence[FieldSummary], ours: Mapping[str, OwnStanding], page: Path
) -> list[str]:
    metrics = list(reversed(METRICS))
    head = ["family", "best (rows)", "without a time (rows)", "rows", *(f"best, {metric}" for metric in metrics)]
    head += [*([f"{SHIPPED}, device"] if ours else []), "copy, best", f"copy, {field.baseline}"]
    head += [f"copy, {SHIPPED}"] if ours else []
    rows = []
    for own in summaries:
        ship = ours.get(own.task.name)
        cells = [
            f"[{own.task.name}]({path_from(page, family_page_of(own.task, page))})",
            own.best_text or ABSENT,
            own.untimed_text,
            f"{own.judged} of {own.wanted}",
            *(speedup(own.best.get(metric)) for metric in metrics),
        ]
        cells += [speedup(ship.mean.ratio if ship else None)] if ours else []
        cells += [share_text(own.best_share), share_text(own.baseline_share)]
        cells += [share_text(ship.share if ship else None)] if ours else []
        rows.append(cells)
    return table(head, rows, numbers=len(head) - 3)


def _repeats(field: Field) -> list[str]:
    judged, different = field.against_itself()
    lines = []
    if judged:
        lines += [f"- `{field.baseline}` against itself: {judged} rows judged, {different} called faster or slower."]
    lines += [f"- {told}" for told in field.repeats().told()]
    if earlier := field.of_earlier_judges():
        told = ", ".join(f"{count} of {task}" for task, count in sorted(earlier.items()))
        lines.append(f"- Rows judged by an earlier version of the judge: {told}.")
    if spent := field.seconds_spent():
        parts = ", ".join(f"{part} {seconds / 60:.1f}" for part, seconds in spent.items())
        total = sum(spent.values()) / 60
        lines.append(f"- Judging took {total:.1f} minutes: {parts}. The first calls include compilation.")
    return lines or ["No row was judged more than once."]


# The page of one family


def _family_page(field: Field, task: Task, summary: Path, command: str, plots: Mapping[Path, str]) -> str:
    page = family_page_of(task, summary)
    sections = ["Rows", "Times", "Rows without a time"]
    lines = [
        f"# {task.name}: the state of the field",
        "",
        f"{escaped(task.file.title)}.",
        "",
        *_opening(field, command),
    ]
    lines += ["", _family_reading(field), "", f"[All families]({path_from(page, summary)}). On this page:", ""]
    lines += [*contents(sections), "", reading.VARIANTS, "", *_means(field, task)]
    for kind, words in KINDS.items():
        if place := next((path for path in plots if path.name == f"{task.name}_{kind}.svg"), None):
            lines += image(f"{task.name}: {words}", path_from(page, place))
    lines += ["", "## Rows", "", *rows_table(field.wanted(task)), "", "## Times", "", *_times_table(field, task)]
    return "\n".join([*lines, "", "## Rows without a time", "", *_untimed(field, task)]) + "\n"


def _family_reading(field: Field) -> str:
    return reading.short_reading(f"the time of `{field.baseline}`", "the contender's", "the contender", "the contender")


def _means(field: Field, task: Task) -> list[str]:
    rows = []
    for variant, own in variants_of(field.wanted(task)).items():
        for contender in field.contenders:
            if cells := _mean_cells(field, task, own, contender):
                rows.append([variant or task.name, escaped(contender), *cells])
    head = ["rows of", "contender", "rows", *reversed(METRICS), DECLINED, "failed"]
    return table(head, rows, numbers=6)


def _mean_cells(field: Field, task: Task, rows: Sequence[Workload], contender: str) -> list[str]:
    found = [s for row in rows if (s := field.standing(task, row, contender))]
    if not found:
        return []
    means = [field.geomean(task, rows, contender, metric) for metric in reversed(METRICS)]
    untimed = [s for s in found if s.result("stream") is None]
    declined = sum(s.declines for s in untimed)
    cells = [speedup(mean[0] if mean else None) for mean in means]
    return [
        f"{len(found) - len(untimed)} of {len(rows)}",
        *cells,
        str(declined or ""),
        str(len(untimed) - declined or ""),
    ]


def _times_table(field: Field, task: Task) -> list[str]:
    """Return the table with the three times of every implementation on each row."""
    names = [name for name in field.contenders if any(field.standing(task, row, name) for row in field.wanted(task))]
    head = ["row", f"{field.baseline}: device / stream / wall", *map(escaped, names), "best"]
    rows = []
    for row in field.wanted(task):
        standings = {name: field.standing(task, row, name) for name in names}
        best, timed = field.best(task, row), any(s and s.result("stream") for s in standings.values())
        shown = f"{escaped(best.run.candidate)} {speedup(best.gain)}" if best else field.baseline if timed else ABSENT
        cells = [_timed(field.home(task, row), "baseline_us"), *(cell(s) for s in standings.values()), shown]
        rows.append([f"`{row.id}`", *cells])
    return [CELLS, "", *table(head, rows)]


def _untimed(field: Field, task: Task) -> list[str]:
    causes: dict[tuple[str, str, str], list[str]] = {}
    for row in field.wanted(task):
        for name in field.contenders:
            s = field.standing(task, row, name)
            if s and s.result("stream") is None:
                why = s.row.reasons[0].partition("\n")[0] if s.row.reasons else "no reason was recorded"
                causes.setdefault((name, cell(s), why.removeprefix(DECLINES)), []).append(row.id)
    rows = [[escaped(name), state, escaped(why), _ids(own)] for (name, state, why), own in causes.items()]
    return table(["contender", "state", "reason", "rows"], rows) if rows else ["None."]


def _ids(rows: Iterable[str]) -> str:
    return ", ".join(f"`{row}`" for row in rows)


def _timed(standing: Standing | None, side: Side) -> str:
    if standing is None:
        return ABSENT
    share = standing.share_of_copy(side=side)
    return f"{_times(standing, side)}, copy {share:.0%}" if share else _times(standing, side)


def _times(standing: Standing, side: Side) -> str:
    order: list[Metric] = list(reversed(METRICS))
    results = [standing.result(metric) for metric in order]
    return " / ".join(f"{getattr(result, side):.1f}" if result else ABSENT for result in results)


def cell(standing: Standing | None) -> str:
    """Return the times, the ratio and the share of a contender on a row, or the reason why it has none."""
    if standing is None:
        return ABSENT
    result = standing.result("device") or standing.result("stream")
    if result is None:
        return standing.state
    share = standing.share_of_copy()
    told = f"{_times(standing, 'candidate_us')}, {ratio_text(result)}"
    return f"{told}, copy {share:.0%}" if share else told
