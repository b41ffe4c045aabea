"""The page of one family's results: its ops, rows, kernels and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernwright.judge.record.verdict import Kernel
from kernwright.report import reading
from kernwright.report.field.field import TIMED, Standing
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
from kernwright.report.results.results import THEIRS, Results, declines, geomean, tokens_of
from kernwright.report.row_ids import rows_table
from kernwright.report.variants import variants_of
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

KINDS = {"speedup": "speedup over each baseline", "wall": "speedup of a single call", "copy": "share of a copy"}
OLDER = "†"  # marks a record that is older than its sources or its baseline
DECLINED = "declined"
MEANS: dict[Metric, str] = {
    "device": "The kernels alone: a replayed CUDA graph with cold caches.",
    "stream": "Calls back to back, including Python and dispatch.",
    "wall": "One call and the wait until it has finished, including Python and dispatch.",
}
READING = reading.short_reading("the baseline's time", "our op's", "our op", "the baseline")
KERNEL_READING = """\
- *Contract*: `exact` requires the bits of the eager chain, `close` requires at least its accuracy.
- *Ran*: the backend of the implementation that ran, with its contract.
- *Kernels*: the kernels of one call.
- *Verdict*: the judge's verdict on the row against each baseline.
- *Tokens*: rows of channels. In a norm over heads, each head of a token counts."""


def family_page_of(task: Task, summary: Path) -> Path:
    """Return the path of a family's page, in the folder that belongs to the summary."""
    return summary.with_suffix("") / f"{task.name}.md"


def opening(results: Results, command: str, task: Task | None = None) -> list[str]:
    """Return the lines that every page of the results begins with, with the marked records of one family or of all."""
    lines = [f"Generated from a ledger by `{command}`; no number is typed by hand.", ""]
    lines += [f"- {escaped(machine)}" for machine in results.machines]
    standings = [own for (name, *_), own in results.standings.items() if task is None or name == task.name]
    older = sum(not results.is_current(standing) for standing in standings)
    if older:
        of = f"{older} of {len(standings)} records"
        lines += ["", f"{OLDER} {of} were made before the last change of the op or of the baseline."]
    return lines


def family_page(results: Results, task: Task, summary: Path, command: str, plots: Mapping[Path, str]) -> list[str]:
    """Return the lines of a family's page."""
    page = family_page_of(task, summary)
    metrics = list(reversed(METRICS))
    sections = ["Rows", "Kernels", *metrics, "Rows without a time", "Rows that lose"]
    lines = [
        f"# {task.name}: results of kernwright.ops",
        "",
        f"{escaped(task.file.title)}.",
        "",
        *opening(results, command, task),
    ]
    lines += ["", READING, "", f"[All families]({path_from(page, summary)}). On this page:", "", *contents(sections)]
    lines += ["", reading.VARIANTS, "", *_means(results, task)]
    for kind, words in KINDS.items():
        if place := next((path for path in plots if path.name == f"{task.name}_{kind}.svg"), None):
            lines += image(f"{task.name}: {words}", path_from(page, place))
    lines += ["", "## Rows", "", *rows_table(results.judged(task))]
    lines += ["", "## Kernels", "", KERNEL_READING, "", *_kernels(results, task)]
    for metric in metrics:
        told = "Each cell has the baseline's time, our time in the same run, the ratio and its interval."
        lines += ["", f"## {metric}", "", f"{MEANS[metric]} {told}", "", *_times(results, task, metric)]
    return [*lines, "", "## Rows without a time", "", *_untimed(results, task)]


def _means(results: Results, task: Task) -> list[str]:
    rows = []
    for variant, own in variants_of(results.wanted(task)).items():
        for baseline in results.baselines_of(task):
            if cells := _mean_cells(results, task, own, baseline):
                rows.append([variant or task.name, escaped(baseline), *cells])
    return table(["rows of", "against", "rows", *reversed(METRICS), DECLINED], rows, numbers=5)


def _mean_cells(results: Results, task: Task, rows: Sequence[Workload], baseline: str) -> list[str]:
    """Return the number of timed rows, the means and the number of declined rows; nothing if no row was judged."""
    found = [standing for row in rows if (standing := results.standing(task, row, baseline))]
    if not found:
        return []
    means = [geomean(result.ratio for s in found if (result := s.result(metric))) for metric in reversed(METRICS)]
    timed = sum(s.result("stream") is not None for s in found)
    declined = sum(declines(s) for s in found)
    return [f"{timed} of {len(rows)}", *(speedup(mean[0] if mean else None) for mean in means), str(declined or "")]


def _kernels(results: Results, task: Task) -> list[str]:
    rows, notes = [], []
    for row in results.judged(task):
        ran, standings = results.ran(task, row), results.of_row(task, row)
        census = next((s.row.kernels["candidate"] for s in standings.values() if s.row.kernels.get("candidate")), [])
        rows.append(
            [
                f"`{row.id}`",
                task.op_of(row).contract,
                f"{ran.backend} ({ran.contract})" if ran else ABSENT,
                _census(census),
                _verdicts(results, standings),
                str(tokens_of(row)),
                share_text(results.share_of_copy(task, row)),
            ]
        )
        if ran and ran.fallback_note:
            notes.append(f"- {row.id}: {escaped(ran.fallback_note)}")
    lines = table(["row", "contract", "ran", "kernels", "verdict", "tokens", "copy"], rows, numbers=2)
    return [*lines, *([""] if notes else []), *notes]


def _verdicts(results: Results, standings: Mapping[str, Standing]) -> str:
    """Return the verdicts on a row; baselines with the same verdict share one entry."""
    found: dict[str, list[str]] = {}
    for name, standing in standings.items():
        found.setdefault(f"{verdict_word(standing)}{_age(results, standing)}", []).append(name)
    return "; ".join(f"{verdict}: {escaped(', '.join(names))}" for verdict, names in found.items())


def _times(results: Results, task: Task, metric: Metric) -> list[str]:
    names = results.baselines_of(task)
    rows = [
        [f"`{row.id}`", *(_cell(results, results.standing(task, row, name), metric) for name in names)]
        for row in results.judged(task)
    ]
    return table(["row", *map(escaped, names)], rows)


def _cell(results: Results, standing: Standing | None, metric: Metric) -> str:
    if standing is None:
        return ABSENT
    result = standing.result(metric)
    if result is None:
        return verdict_word(standing) if standing.row.verdict not in TIMED or not standing.row.metrics else ABSENT
    times = f"{time_text(result.baseline_us)}, {time_text(result.candidate_us)}"
    return f"{times}, {ratio_text(result)}{_age(results, standing)}"


def verdict_word(standing: Standing) -> str:
    """Return the verdict on a row, or `declined` if the baseline does not run it."""
    return DECLINED if declines(standing) else standing.row.verdict


def _age(results: Results, standing: Standing) -> str:
    return "" if results.is_current(standing) else OLDER


def _untimed(results: Results, task: Task) -> list[str]:
    causes: dict[tuple[str, str, str], list[str]] = {}
    for row in results.judged(task):
        for name, standing in results.of_row(task, row).items():
            if standing.result("stream") is None:
                why = standing.row.reasons[0] if standing.row.reasons else "no reason was recorded"
                causes.setdefault((name, verdict_word(standing), _bare(why)), []).append(row.id)
    rows = [[escaped(name), state, escaped(why), _ids(rows)] for (name, state, why), rows in causes.items()]
    return table(["baseline", "state", "reason", "rows"], rows) if rows else ["None."]


def _ids(rows: Iterable[str]) -> str:
    return ", ".join(f"`{row}`" for row in rows)


def _bare(reason: str) -> str:
    """Return the first line of a reason, without the words that the state already says."""
    return reason.partition("\n")[0].removeprefix(f"{THEIRS}declines: ")


def _census(kernels: Sequence[Kernel]) -> str:
    names = Counter({_short(kernel.name): kernel.count for kernel in kernels})
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names.items()) or ABSENT


def _short(name: str) -> str:
    """Return the name of a kernel without the arguments of its template and its own."""
    bare = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return escaped(bare.partition("<")[0].partition("(")[0][:60])
