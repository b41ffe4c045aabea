"""Scoreboard: the verdicts of a ledger as tables, with the best candidate so far of each comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernwright.core.plain_text import plain
from kernwright.report.scoreboard.score import Score, best_scores

if TYPE_CHECKING:
    from rich.table import Table


def scoreboard(scores: Sequence[Score]) -> list[Table]:
    """Return a table for each task, baseline, device and metric, with the highest speedup first."""
    best = best_scores(scores)
    groups: dict[tuple[str, str, str, str], list[Score]] = {}
    for score in scores:
        groups.setdefault(score.group, []).append(score)
    return [_table(group, best) for _, group in sorted(groups.items())]


def _table(scores: Sequence[Score], best: set[Score]) -> Table:
    from rich.table import Table

    first = scores[0]
    table = Table(
        title=plain(f"{first.task} against {first.baseline} on {first.device} ({first.metric} decides)"),
        title_justify="left",
    )
    for column in ("candidate", "verdict", "speedup", "interval", "rows", "best so far", "run"):
        numbers = column in ("speedup", "interval", "rows")
        table.add_column(column, justify="right" if numbers else "left", overflow="fold", no_wrap=column == "run")
    for score in sorted(scores, key=lambda score: -(score.speedup or 0.0)):
        table.add_row(
            plain(score.candidate),
            score.verdict if score.evidence else f"{score.verdict} (not evidence)",
            f"{score.speedup:.3f}x" if score.speedup is not None else "–",
            "{:.3f} – {:.3f}".format(*score.interval) if score.interval else "–",
            str(len(score.rows)),
            "best" if score in best else "",
            plain(score.run),
        )
    return table
