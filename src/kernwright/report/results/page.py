"""The summary page of the results, and the list of all files that belong to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernwright.report import reading
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
    time_text,
)
from kernwright.report.results.family_page import OLDER, family_page, family_page_of, opening
from kernwright.report.results.plots import SUMMARY_PLOT, plots_of
from kernwright.report.results.results import LEAST_OF_BEST, MOST_LOST_US, SHORT_US, Results, loses_clearly
from kernwright.report.results.summary import FamilySummary, summaries_of
from kernwright.report.row_ids import id_legend
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.task import Task

SECTIONS = ("Families", "How to read the tables", "Row ids", "Rows that lose")
SANITIZER_SECTION = "compute-sanitizer"
ABOUT = """\
This page shows how fast the ops of `kernwright.ops` are, compared with published kernels, `torch.compile` and eager
PyTorch. The judge ran each op through its public function, as it runs any candidate: on every production row it first
checked the outputs, then timed op and baseline in turn, in the same run."""
BEST_PEER = """\
- The **best peer** of a row is the baseline with the lowest ratio on that row. In the summary, `device`, `stream` and
  `wall` are geometric means of the ratios against the best peer of each row, which is chosen for each of the three
  times. The column *best peer* counts the rows on which each baseline is the best peer in `device`."""
FURTHER = """\
- **Rows that lose** are rows whose whole interval lies below 1. The summary counts those in `device`.
- An op's contract is **exact** (the bits of the eager chain) or **close** (no less accurate than the eager chain)."""
READING = "\n".join(
    [
        reading.ROW,
        reading.ratios("the baseline's time", "our op's", "our op"),
        reading.TIMES,
        BEST_PEER,
        reading.COPY,
        reading.declined("the baseline"),
        FURTHER,
    ]
)
BAR = f"""\
*Clear loss*: the whole interval lies below {LEAST_OF_BEST:g}. A time under {SHORT_US:g} us must also be slower by
more than {MOST_LOST_US:g} us, because a smaller difference may come from the clock."""
NO_FAULTS = "There is no row on which our op is incorrect, tampered or failed."
WATCHED = """\
Every smoke row and the odd sizes next to it run under NVIDIA's compute-sanitizer, with each tensor in its own
allocation: `kernwright sanitize TASK --candidate kernwright`. Runs from before the last change of an op's
sources count as not run."""


def files_of(results: Results, summary: Path, command: str) -> dict[Path, str]:
    """Return every page and plot by its path."""
    folder = summary.with_suffix("")
    summaries = summaries_of(results)
    plots = {folder / name: text for name, text in plots_of(results, summaries).items()}
    files = {summary: _summary_page(results, summaries, summary, command, plots)} | plots
    for task in results.families:
        page = family_page_of(task, summary)
        lines = [
            *family_page(results, task, summary, command, plots),
            "",
            "## Rows that lose",
            "",
            *losses(results, [task]),
        ]
        files[page] = "\n".join(lines) + "\n"
    return files


def _summary_page(
    results: Results, summaries: Sequence[FamilySummary], page: Path, command: str, plots: Mapping[Path, str]
) -> str:
    sections = [*SECTIONS, *([SANITIZER_SECTION] if results.device == "cuda" else [])]
    lines = ["# Results of kernwright.ops", "", *opening(results, command), "", ABOUT]
    if place := next((path for path in plots if path.name == SUMMARY_PLOT), None):
        lines += image("speedup of kernwright.ops over each baseline, by family", path_from(page, place))
    lines += ["", *summary_table(summaries, page), "", "Contents:", "", *contents(sections)]
    lines += ["", f"## {SECTIONS[0]}", "", *_families(results, page)]
    lines += ["", f"## {SECTIONS[1]}", "", READING]
    rows = [row for task in results.families for row in results.judged(task)]
    lines += ["", f"## {SECTIONS[2]}", "", "Each family's page lists the shapes and dtypes of its rows.", ""]
    lines += id_legend(rows)
    lines += ["", f"## {SECTIONS[3]}", "", *losses(results, results.families)]
    if results.device == "cuda":
        lines += ["", f"## {SANITIZER_SECTION}", "", WATCHED, "", *results.sanitized.table(results.families)]
    return "\n".join(lines) + "\n"


def summary_table(summaries: Sequence[FamilySummary], page: Path) -> list[str]:
    """Return the table with one line per family: ours against the best peer, and the shares of a copy."""
    head = ["family", "best peer (rows)", "rows", *_metrics(), "rows that lose", "copy, ours", "copy, best peer"]
    rows = [
        [
            f"[{own.task.name}]({path_from(page, family_page_of(own.task, page))}){OLDER if own.older else ''}",
            own.best_peers_text or ABSENT,
            f"{own.judged} of {own.wanted}",
            *(speedup(own.over_best.get(metric)) for metric in _metrics()),
            str(own.losing),
            share_text(own.own_share),
            share_text(own.peer_share),
        ]
        for own in summaries
    ]
    return table(head, rows, numbers=7)


def _metrics() -> list[Metric]:
    return list(reversed(METRICS))


def _families(results: Results, page: Path) -> list[str]:
    lines = []
    for task in results.families:
        judged, wanted = results.judged(task), results.wanted(task)
        missing = Counter(row.op for row in wanted if row not in judged)
        told = ", ".join(f"{count} of {op}" for op, count in missing.items())
        link = f"[{task.name}]({path_from(page, family_page_of(task, page))})"
        counted = f"{len(judged)} of {len(wanted)} rows judged{f'; not judged: {told}' if told else ''}"
        lines.append(f"- {link}: {escaped(task.file.title)}. {counted}.")
    return lines


def losses(results: Results, tasks: Sequence[Task]) -> list[str]:
    """Return a table of the rows whose whole interval lies below 1, in any time and against any baseline."""
    found: list[tuple[float, list[str]]] = []
    for task in tasks:
        for row in results.judged(task):
            for name, standing in results.of_row(task, row).items():
                for metric in METRICS:
                    result = standing.result(metric)
                    if result and result.interval[1] < 1:
                        clear = "yes" if loses_clearly(result) else "no"
                        times = [time_text(result.baseline_us), time_text(result.candidate_us)]
                        cells = [task.name, f"`{row.id}`", metric, escaped(name), clear, *times, ratio_text(result)]
                        found.append((result.ratio, cells))
    faults = [
        f"- {task.name}, `{row.id}`: {escaped(why)}"
        for task in tasks
        for row in results.judged(task)
        if (why := results.fault(task, row))
    ]
    wrong = ["Rows on which our op is incorrect, tampered or failed:", "", *faults] if faults else [NO_FAULTS]
    if not found:
        return ["None: no interval lies below 1.", "", *wrong]
    head = ["family", "row", "time", "baseline", "clear loss", "baseline us", "ours us", "ratio (interval)"]
    return [*table(head, [cells for _, cells in sorted(found)], numbers=3), "", BAR, "", *wrong]
