"""Field: how the baselines that people run stand on the frozen rows, gathered from a ledger and written as a page.

Ratios are those of one run, where both sides were measured in turn; times of different runs stand side by side only to
be read. A record of another task digest, or of baselines of which one has changed, enters nothing; it is stale until
all of its rows have been judged again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from kernwright.judge.record.recorded import recorded_bodies
from kernwright.judge.record.verdict import MetricResult, Outcome, RowVerdict, Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.report.current_baselines import CurrentBaselines
from kernwright.report.field.repeats import DeviceTime, Repeats
from kernwright.report.machines import gpu_of, machines_of, model_of, refuse_mixed_models
from kernwright.report.variants import variants_of
from kernwright.tasks.candidate import CANDIDATE_FILE, SHIPPED
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

DECLINES = "the candidate declines: "  # as the judge says it
TIMED: frozenset[Outcome] = frozenset({"faster", "same", "slower", "inconclusive"})
Key = tuple[str, str, str]  # task, row, contender
Side = Literal["baseline_us", "candidate_us"]


@dataclass(frozen=True)
class Standing:
    """One contender on one row: the row's verdict, and the run that it comes from."""

    row: RowVerdict
    run: Verdict
    recorded_in: str = ""  # the ledger's run

    def result(self, metric: Metric) -> MetricResult | None:
        """Return the result of a metric, or None if the row is wrong in any way."""
        if self.row.verdict not in TIMED:
            return None
        found = self.row.metrics.get(metric)
        return found if isinstance(found, MetricResult) else None

    @property
    def gain(self) -> float:
        """The ratio that contenders are ranked by: `device` if it was measured, else `stream`."""
        results = [self.result("device"), self.result("stream")]
        return next((result.ratio for result in results if result), 0.0)

    @property
    def declines(self) -> bool:
        """Whether the contender has no kernel for the row, which is no fault."""
        return self.row.verdict == "failed" and self.row.reasons[:1] != () and self.row.reasons[0].startswith(DECLINES)

    def share_of_copy(self, metric: Metric = "device", side: Side = "candidate_us") -> float | None:
        result = self.result(metric)
        return self.row.fastest_copy_us / getattr(result, side) if result and self.row.fastest_copy_us else None


@dataclass
class Field:
    """The newest standing of every contender on every row of some tasks, against one baseline, on one device."""

    tasks: Sequence[Task]
    baseline: str
    device: str
    rows: str
    standings: dict[Key, list[Standing]] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    stale_runs: set[str] = field(default_factory=set)

    @classmethod
    def gathered(
        cls, ledger: Ledger, tasks: Sequence[Task], baseline: str, device: str, rows: str, model: str | None = None
    ) -> Field:
        """`model`: records of this one only; without it there may be no other."""
        found = cls(tasks=tasks, baseline=baseline, device=device, rows=rows)
        wanted = {task.name: {row.id for row in found.wanted(task)} for task in found.families}
        today = CurrentBaselines(tasks)
        outdated: list[tuple[str, str, set[Key]]] = []
        for record in recorded_bodies(ledger):
            if record.body.get("task") not in wanted or not record.body.get("evidence"):
                continue
            verdict = record.verdict()
            if verdict.baseline != baseline or verdict.provenance["device"].partition(":")[0] != device:
                continue
            if verdict.metric != found.metric_of(verdict.task):  # `judge --metric` asked another question
                continue
            if verdict.candidate == SHIPPED or _is_of_a_folder(verdict):  # not a part of the field
                continue
            if model is not None and model_of(verdict) != model:
                continue
            standings = {
                (verdict.task, row.id, verdict.candidate): Standing(row, verdict, record.run)
                for row in verdict.rows
                if row.id in wanted[verdict.task]
            }
            if cause := found._outdated_by(verdict, today):
                finished = verdict.provenance["finished"]
                told = f"{cause}: {verdict.task}: {verdict.candidate}, {finished}, run {record.run}"
                outdated.append((told, record.run, set(standings)))
                continue
            for key, standing in standings.items():
                found.standings.setdefault(key, []).append(standing)
        for told, run, keys in outdated:
            if not keys <= found.standings.keys():  # Rows that were judged again since are no longer stale.
                found.stale.append(told)
                found.stale_runs.add(run)
        refuse_mixed_models(found.runs())
        return found

    def metric_of(self, task: str) -> Metric:
        """Return the deciding metric of a task's policy."""
        return next(own.policy.decides for own in self.tasks if own.name == task)

    @property
    def recorded_in(self) -> set[str]:
        """The ledger's runs that the page uses. Repeats use all records of a row, so that no such run is superseded."""
        return {own.recorded_in for found in self.standings.values() for own in found} | self.stale_runs

    def _outdated_by(self, verdict: Verdict, today: CurrentBaselines) -> str | None:
        if verdict.task_digest != next(task.digest for task in self.tasks if task.name == verdict.task):
            return "of another task digest"
        if not today.hold(verdict):
            return f"of another {verdict.baseline} than today's"
        return None if today.hold_contender(verdict) else f"of another {verdict.candidate} than today's"

    def runs(self) -> list[Verdict]:
        """Return the verdicts that the page uses."""
        return [standing.run for found in self.standings.values() for standing in found]

    @cached_property
    def contenders(self) -> list[str]:
        return sorted({contender for _, _, contender in self.standings if contender != self.baseline})

    @property
    def families(self) -> list[Task]:
        """The tasks with rows on the page."""
        return [task for task in self.tasks if self.wanted(task)]

    def wanted(self, task: Task) -> tuple[Workload, ...]:
        return task.matching(self.rows)

    def standing(self, task: Task, row: Workload | str, contender: str) -> Standing | None:
        found = self.standings.get((task.name, row if isinstance(row, str) else row.id, contender))
        return found[-1] if found else None

    def home(self, task: Task, row: Workload | str) -> Standing | None:
        """Return the standing with the times of the baseline: its run against itself, else the first that has any."""
        own, *others = (self.standing(task, row, name) for name in (self.baseline, *self.contenders))
        return next((standing for standing in (own, *others) if standing and standing.result("stream")), own)

    def best(self, task: Task, row: Workload) -> Standing | None:
        """Return the contender with the largest gain above 1, or None."""
        found = [s for contender in self.contenders if (s := self.standing(task, row, contender)) and s.gain > 1]
        return max(found, key=lambda standing: standing.gain, default=None)

    # Over many rows

    def geomean(self, task: Task, rows: Iterable[Workload], contender: str, metric: Metric) -> tuple[float, int] | None:
        standings = [self.standing(task, row, contender) for row in rows]
        logs = [math.log(result.ratio) for s in standings if s and (result := s.result(metric))]
        return (math.exp(sum(logs) / len(logs)), len(logs)) if logs else None

    def against_itself(self) -> tuple[int, int]:
        """Return the number of row verdicts of the baseline against itself, and of those that found a difference."""
        rows = [s.row for (_, _, name), found in self.standings.items() if name == self.baseline for s in found]
        return len(rows), sum(row.verdict in ("faster", "slower") for row in rows)

    def repeats(self) -> Repeats:
        """Return the device times of rows that were judged more than once."""
        found = Repeats()
        for (task, row, contender), standings in self.standings.items():
            times = [
                DeviceTime(result.candidate_us, gpu_of(run), _judge_of(run), str(run.provenance["finished"]))
                for standing in standings
                for run in [standing.run]
                if (result := standing.result("device"))
            ]
            found.add(contender, task, row, times)
        return found

    @property
    def _newest_judge(self) -> str:
        """The version of the judge in the newest verdict."""
        newest = max(self.runs(), key=lambda run: str(run.provenance["finished"]), default=None)
        return _judge_of(newest) if newest else ""

    def of_earlier_judges(self) -> dict[str, int]:
        """Return the number of rows per task that an earlier version of the judge judged."""
        newest = self._newest_judge
        rows = {(task, row) for (task, row, _), found in self.standings.items() if _judge_of(found[-1].run) != newest}
        return dict(Counter(task for task, _ in rows))

    def seconds_spent(self) -> dict[str, float]:
        """Return the seconds per part of the judgements. Pairs that were judged together count once."""
        latest = [found[-1].run for found in self.standings.values()]
        judgements = {
            (run.task, run.provenance["started"], run.provenance["finished"]): run.provenance.get("seconds", {})
            for run in latest
        }
        spent: dict[str, float] = {}
        for parts in judgements.values():
            for part, seconds in parts.items():
                spent[part] = spent.get(part, 0.0) + seconds
        return spent

    # The page

    def page(self, command: str, plots: Mapping[str, str] | None = None) -> str:
        """`plots`: where images lie, by family and kind, as in `norm_infer_speedup`."""
        lines = ["# The state of the field", "", f"Generated from a ledger by `{command}`; no number is typed by hand."]
        lines += ["", *(f"- {machine}" for machine in machines_of(self.runs()))]
        lines += ["", *self._explained(), "", *self._summary()]
        for task in self.families:
            lines += ["", f"## {task.name}", "", f"{task.file.title}."]
            for kind in ("speedup", "copy"):
                if place := (plots or {}).get(f"{task.name}_{kind}"):
                    lines += ["", f"![{kind} of {task.name}]({place})"]
            lines += ["", *self._family(task)]
        return "\n".join(lines) + "\n"

    def _explained(self) -> list[str]:
        judged, different = self.against_itself()
        lines = [
            f"Times are microseconds: `wall` one call and a wait, `stream` a run of calls, `device` the kernels alone. "
            f"Ratios are {self.baseline}'s time over the contender's in the same run, by `device` where there is one. "
            "`copy` is the share of a copy of the same fewest bytes, measured in the same run: a yardstick, no limit, "
            "which a kernel that reads more than it writes may pass.",
        ]
        if self.device != "cpu":
            lines[0] += (
                " A row over 16 MiB is called by a worker that stood still just before: its `wall` has more of a cold "
                "start in it than a smaller one's."
            )
        if given := {run.provenance.get("rounds") or run.provenance["policy"]["max_rounds"] for run in self.runs()}:
            lines[0] += f" Rows were given {' or '.join(map(str, sorted(given)))} rounds at most."
        if judged:
            lines += [
                "",
                f"{self.baseline} against itself: {judged} row-verdicts, {different} called faster or slower.",
            ]
        lines += [line for told in self.repeats().told() for line in ("", told)]
        if earlier := self.of_earlier_judges():
            told = ", ".join(f"{count} of {task}" for task, count in sorted(earlier.items()))
            lines += ["", f"Rows that an earlier version of the judge judged: {told}."]
        if spent := self.seconds_spent():
            parts = ", ".join(f"{part} {seconds / 60:.1f}" for part, seconds in spent.items())
            lines += [
                "",
                f"Judging took {sum(spent.values()) / 60:.1f} minutes: {parts}. First calls are those that compile.",
            ]
        return lines

    def _summary(self) -> list[str]:
        lines = [
            "Geometric means over rows of one op. Where its calls differ in which inputs have a value for every "
            "element, or in these inputs' dtypes, they differ in traffic: each kind has a line, which names those.",
            "",
            "| family | rows of | contender | rows | wall | stream | device | without a time |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for task in self.families:
            for variant, rows in variants_of(self.wanted(task)).items():
                for contender in self.contenders:
                    if cells := self._means(task, rows, contender):
                        lines.append(f"| {' | '.join([task.name, variant, contender, *cells])} |")
        return lines

    def _means(self, task: Task, rows: Sequence[Workload], contender: str) -> list[str]:
        found = [s for row in rows if (s := self.standing(task, row, contender))]
        if not found:
            return []
        means = [self.geomean(task, rows, contender, metric) for metric in METRICS]
        untimed = sum(s.result("stream") is None for s in found)
        cells = [f"{mean[0]:.2f}x" if mean else "–" for mean in means]
        return [f"{len(found) - untimed} of {len(rows)}", *cells, str(untimed or "")]

    def _family(self, task: Task) -> list[str]:
        head = ["row", "MB", self.baseline, *self.contenders, "best"]
        lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        untimed: dict[tuple[str, str, str], list[str]] = {}
        for row in self.wanted(task):
            standings = {name: self.standing(task, row, name) for name in self.contenders}
            timed = [s for s in standings.values() if s and s.result("stream")]
            cells = [row.id, f"{row.bytes_min / 1e6:.1f}", _timed(self.home(task, row), "baseline_us")]
            cells += [_cell(standing) for standing in standings.values()]
            best = self.best(task, row)
            cells.append(f"{best.run.candidate} {best.gain:.2f}x" if best else self.baseline if timed else "–")
            lines.append(f"| {' | '.join(cells)} |")
            for name, s in standings.items():
                if s and s.result("stream") is None and s.row.reasons:
                    untimed.setdefault((name, _cell(s), s.row.reasons[0].partition("\n")[0]), []).append(row.id)
        reasons = [
            f"- {name}: {state}: {why.removeprefix(DECLINES)} ({', '.join(rows)})"
            for (name, state, why), rows in untimed.items()
        ]
        return [*lines, *(["", "Without a time:", "", *reasons] if reasons else [])]


def _is_of_a_folder(verdict: Verdict) -> bool:
    """Return whether a verdict is of a candidate's folder, which may have the name of a baseline."""
    return CANDIDATE_FILE in verdict.provenance.get("sources", {})


def _judge_of(run: Verdict) -> str:
    """Return the version of the judge of a verdict."""
    return str(run.provenance.get("judge"))


def _timed(standing: Standing | None, side: Side) -> str:
    if standing is None:
        return "–"
    share = standing.share_of_copy(side=side)
    return f"{_times(standing, side)}, copy {share:.0%}" if share else _times(standing, side)


def _times(standing: Standing, side: Side) -> str:
    results = [standing.result(metric) for metric in METRICS]
    return " / ".join(f"{getattr(result, side):.1f}" if result else "–" for result in results)


def _cell(standing: Standing | None) -> str:
    if standing is None:
        return "–"
    result = standing.result("device") or standing.result("stream")
    if result is None:
        return "declines" if standing.declines else standing.row.verdict
    share = standing.share_of_copy()
    low, high = result.interval
    told = f"{_times(standing, 'candidate_us')}, {result.ratio:.2f}x ({low:.2f}–{high:.2f})"
    return f"{told}, copy {share:.0%}" if share else told
