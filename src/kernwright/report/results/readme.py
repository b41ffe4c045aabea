"""The generated part of a README: the summary plot and one table with the standing of the ops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernwright.report.markdown import path_from, share_text, speedup, table
from kernwright.report.results.family_page import DECLINED, OLDER, family_page_of, opening
from kernwright.report.results.plots import SUMMARY_PLOT
from kernwright.report.results.results import Results
from kernwright.report.results.summary import FamilySummary, summaries_of
from kernwright.report.row_plot import Mean

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def readme_of(summary: Path) -> Path | None:
    """Return the README of the checkout that a summary page is in, if the README has a generated part."""
    readme = summary.parent.parent / "README.md"
    if not readme.is_file():
        return None
    text = readme.read_text(encoding="utf-8")
    return readme if BEGIN in text and END in text else None


def readme_text(readme: Path, results: Results, summary: Path, command: str) -> str:
    """Return the text of a README with its generated part made anew."""
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [BEGIN, *_part(readme, results, summaries_of(results), summary, command), END]
    return before + "\n".join(lines) + after


def _part(readme: Path, results: Results, summaries: Sequence[FamilySummary], summary: Path, command: str) -> list[str]:
    plot = path_from(readme, summary.with_suffix("") / SUMMARY_PLOT)
    shown = [name for name in results.baselines if name in _columns(results)]
    head = ["family", "ops", "rows", *shown, "best peer", "share of a copy"]
    rows = [
        [
            f"[{own.task.name}]({path_from(readme, family_page_of(own.task, summary))}){OLDER if own.older else ''}",
            ", ".join(f"`{op}`" for op in dict.fromkeys(row.op for row in results.judged(own.task))),
            str(own.judged),
            *(_mean(own.over.get(name)) for name in shown),
            speedup(own.over_best.get(own.kernel_metric)),
            share_text(own.own_share),
        ]
        for own in summaries
    ]
    lines = [f"![speedup of kernwright.ops over each baseline]({plot})", ""]
    lines += [*table(head, rows, numbers=len(head) - 2), "", *opening(results, command)]
    return lines


def _mean(mean: Mean | None) -> str:
    """Return a mean ratio. If the baseline declined rows, the number of rows follows."""
    if mean is None:
        return DECLINED
    return f"{speedup(mean.ratio)} ({mean.rows} rows)" if mean.is_partial else speedup(mean.ratio)


def _columns(results: Results) -> set[str]:
    published = [name for name in results.baselines if "@" in name]
    return {*published[:1], "compile", "eager"}
