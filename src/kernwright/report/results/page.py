"""The pages of the results: one over all families, and one in each family's task folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernwright.judge.record.verdict import Kernel, MetricResult
from kernwright.report.field.field import TIMED, Standing
from kernwright.report.results.plots import plots_of
from kernwright.report.results.results import Results, declines, geomean, loses_clearly, tokens_of
from kernwright.report.variants import variants_of
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

FAMILY_FILE = "RESULTS.md"
SUMMARY = Path("docs/results.md")
KINDS = ("speedup", "wall", "copy")
OLDER = "†"  # judged before the last change of its sources or of its baseline
EXPLAINED = """\
`kernwright.ops` judged as any candidate is, by its public calls, on every production row of every family that has an
implementation: correct on all kinds of inputs and at odd sizes first, then timed. A ratio is a baseline's time over
ours in the same run: over 1, ours is faster. Microseconds. Three times, never mixed: `wall` one call and a wait,
`stream` calls back to back, `device` the kernels alone. `copy` is the share of a copy of the row's fewest bytes,
measured in the same run. A row's contract is what it was held to: `exact` the bits of the eager chain, `close` no less
accurate than it. The best peer of a row is the baseline that ours gains least on; tokens are rows of channels, so of a
norm over heads every head counts. A baseline that declines a row has no time there, and is named. What is lost stays
here, in bold. `kernwright results --check` finds a page that says something else than the ledger."""
WATCHED = """\
Each tensor an allocation of its own, on the smoke rows and at the odd sizes beside them: `kernwright sanitize TASK
--candidate kernwright`. Of the sources as they are now; what was watched before their last change counts as not run."""
MEANS: dict[Metric, str] = {
    "wall": "One call, asked for by itself and waited for, Python and dispatch included.",
    "stream": "Calls back to back, Python included.",
    "device": "The kernels alone: a replayed graph, caches cold.",
}


def family_page_of(task: Task, summary: Path) -> Path:
    """In the task's own folder where the summary is that checkout's; else below the summary: nobody's ledger writes
    into another's checkout, nor into an installed package."""
    is_its_own = summary.absolute() == (task.folder.parent.parent / SUMMARY).absolute()
    return task.folder / FAMILY_FILE if is_its_own else summary.with_suffix("") / f"{task.name}.md"


def files_of(results: Results, summary: Path, command: str) -> dict[Path, str]:
    """Every page and plot, by where it lies."""
    folder = summary.with_suffix("")
    plots = {folder / name: text for name, text in plots_of(results).items()}
    files = {summary: _summary_page(results, summary, command, plots)} | plots
    for task in results.families:
        files[family_page_of(task, summary)] = _family_page(results, task, summary, command, plots)
    return files


def _summary_page(results: Results, page: Path, command: str, plots: Mapping[Path, str]) -> str:
    lines = ["# Results of kernwright.ops", "", *_opening(results, command), "", EXPLAINED, ""]
    lines += ["## Families", "", *_families(results)]
    lines += ["", "## Rows that lose", "", *_losses(results, results.families)]
    if results.device == "cuda":
        lines += ["", "## Under compute-sanitizer", "", WATCHED, "", *results.sanitized.table(results.families)]
    for task in results.families:
        by_row = f"[Row by row]({_way(page, family_page_of(task, page))})"
        lines += ["", f"## {task.name}", "", f"{task.file.title}. {by_row}."]
        lines += [line for kind in KINDS for line in _image(task, kind, page, plots)]
    return "\n".join(lines) + "\n"


def _family_page(results: Results, task: Task, summary: Path, command: str, plots: Mapping[Path, str]) -> str:
    page = family_page_of(task, summary)
    lines = [f"# {task.name}: results", "", f"{task.file.title}.", "", *_opening(results, command)]
    lines += ["", f"[What the figures mean, and all families]({_way(page, summary)}).", "", *_means(results, [task])]
    for kind in KINDS:
        lines += _image(task, kind, page, plots)
    lines += ["", "## What ran", "", *_what_ran(results, task)]
    for metric in METRICS:
        lines += ["", f"## {metric}", "", f"{MEANS[metric]} Theirs, ours in the same run, the ratio and its interval."]
        lines += ["", *_times(results, task, metric)]
    lines += ["", "## Rows that lose", "", *_losses(results, [task])]
    lines += ["", "## Without a time", "", *_untimed(results, task)]
    return "\n".join(lines) + "\n"


def _opening(results: Results, command: str) -> list[str]:
    lines = [f"Generated from a ledger by `{command}`; no number is typed by hand.", ""]
    lines += [f"- {machine}" for machine in results.machines]
    older = sum(not results.is_current(standing) for standing in results.standings.values())
    if older:
        of = f"{older} of {len(results.standings)} records"
        lines += ["", f"{OLDER} {of} were made before the last change of their sources or of their baseline."]
    return lines


def _families(results: Results) -> list[str]:
    lines = [*_means(results, results.families), "", "Rows judged:", ""]
    for task in results.families:
        judged, wanted = results.judged(task), results.wanted(task)
        missing = Counter(row.op for row in wanted if row not in judged)
        told = ", ".join(f"{count} of {op}" for op, count in missing.items())
        lines.append(f"- {task.name}: {len(judged)} of {len(wanted)}{f'; not judged: {told}' if told else ''}")
    return lines


def _means(results: Results, tasks: Sequence[Task]) -> list[str]:
    lines = [
        "Geometric means over rows of one op. Where its calls differ in which inputs have a value for every element,",
        "or in these inputs' dtypes, they differ in traffic: each kind has a line, which names those.",
        "",
        "| family | rows of | against | rows | wall | stream | device | declined |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in tasks:
        for variant, rows in variants_of(results.wanted(task)).items():
            for baseline in results.baselines_of(task):
                if cells := _mean_cells(results, task, rows, baseline):
                    lines.append(f"| {' | '.join([task.name, variant, baseline, *cells])} |")
    return lines


def _mean_cells(results: Results, task: Task, rows: Sequence[Workload], baseline: str) -> list[str]:
    """How many have a time, the means of these, and how many the baseline declines; nothing where none was judged."""
    found = [standing for row in rows if (standing := results.standing(task, row, baseline))]
    if not found:
        return []
    means = [geomean(result.ratio for s in found if (result := s.result(metric))) for metric in METRICS]
    timed = sum(s.result("stream") is not None for s in found)
    declined = sum(declines(s) for s in found)
    return [f"{timed} of {len(rows)}", *(f"{mean[0]:.2f}x" if mean else "–" for mean in means), str(declined or "")]


def _what_ran(results: Results, task: Task) -> list[str]:
    lines = ["| row | tokens | MB | contract | ran | kernels | copy | verdicts |", "|---|---|---|---|---|---|---|---|"]
    for row in results.judged(task):
        ran, share = results.ran(task, row), results.share_of_copy(task, row)
        standings = results.of_row(task, row)
        census = next((s.row.kernels["candidate"] for s in standings.values() if s.row.kernels.get("candidate")), [])
        verdicts = "; ".join(f"{name}: {_verdict(s)}{_age(results, s)}" for name, s in standings.items())
        cells = [
            row.id, str(tokens_of(row)), f"{row.bytes_min / 1e6:.1f}", task.op_of(row).contract,
            f"{ran.backend} ({ran.contract})" if ran else "–", _census(census), f"{share:.0%}" if share else "–",
            verdicts,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    told = ((row.id, results.ran(task, row)) for row in results.judged(task))
    notes = [f"- {row}: {ran.fallback_note}" for row, ran in told if ran and ran.fallback_note]
    return [*lines, *([""] if notes else []), *notes]


def _times(results: Results, task: Task, metric: Metric) -> list[str]:
    names = results.baselines_of(task)
    lines = [f"| row | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    for row in results.judged(task):
        cells = [_ratio_cell(results, results.standing(task, row, name), metric) for name in names]
        lines.append(f"| {row.id} | {' | '.join(cells)} |")
    return lines


def _ratio_cell(results: Results, standing: Standing | None, metric: Metric) -> str:
    if standing is None:
        return "–"
    result = standing.result(metric)
    if result is None:
        return _verdict(standing) if standing.row.verdict not in TIMED or not standing.row.metrics else "–"
    times = f"{time_text(result.baseline_us)}, {time_text(result.candidate_us)}"
    return f"{times}, {ratio_text(result)}{_age(results, standing)}"


def ratio_text(result: MetricResult) -> str:
    """Return a ratio with its interval, in bold if ours is slower."""
    low, high = result.interval
    told = f"{result.ratio:.2f}x ({low:.2f}–{high:.2f})"
    return f"**{told}**" if high < 1 else told


def time_text(time: float) -> str:
    """Return a time in microseconds."""
    return f"{time:.2f}" if time < 10 else f"{time:.1f}"


def _verdict(standing: Standing) -> str:
    return "declines" if declines(standing) else standing.row.verdict


def _age(results: Results, standing: Standing) -> str:
    return "" if results.is_current(standing) else OLDER


def _losses(results: Results, tasks: Sequence[Task]) -> list[str]:
    """Every row whose whole interval lies below one, against whomever, in whichever time."""
    found: list[tuple[float, str]] = []
    for task in tasks:
        for row in results.judged(task):
            for name, standing in results.of_row(task, row).items():
                for metric in METRICS:
                    result = standing.result(metric)
                    if result and result.interval[1] < 1:
                        times = f"{time_text(result.baseline_us)} us, ours {time_text(result.candidate_us)} us"
                        clear = ", clearly" if loses_clearly(result) else ""
                        what = f"{task.name}, {row.id}, {metric} against {name}"
                        found.append((result.ratio, f"- {what}: {times}, {ratio_text(result)}{clear}"))
    return [line for _, line in sorted(found)] or ["None: no interval lies below 1."]


def _untimed(results: Results, task: Task) -> list[str]:
    causes: dict[str, list[str]] = {}
    for row in results.judged(task):
        for name, standing in results.of_row(task, row).items():
            if standing.result("stream") is None:
                why = standing.row.reasons[0] if standing.row.reasons else "no reason was recorded"
                causes.setdefault(f"{name}: {standing.row.verdict}: {why}", []).append(row.id)
    return [f"- {cause} ({', '.join(rows)})" for cause, rows in causes.items()] or ["None."]


# Words


def _census(kernels: Sequence[Kernel]) -> str:
    names = Counter({_short(kernel.name): kernel.count for kernel in kernels})
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names.items()) or "–"


def _short(name: str) -> str:
    """A kernel's name without its template's and its own arguments."""
    bare = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return bare.partition("<")[0].partition("(")[0].replace("|", "/")[:60]


def _image(task: Task, kind: str, page: Path, plots: Mapping[Path, str]) -> list[str]:
    place = next((path for path in plots if path.name == f"{task.name}_{kind}.svg"), None)
    return ["", f"![{kind} of {task.name}]({_way(page, place)})"] if place else []


def _way(page: Path, to: Path) -> str:
    return Path(os.path.relpath(to.absolute(), page.absolute().parent)).as_posix()
