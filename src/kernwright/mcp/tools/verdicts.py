"""The tools of verdicts and ledgers: list, show, scoreboard, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from kernwright.advice.failing_case import FailingCase
from kernwright.advice.fault import FAULTS
from kernwright.core.errors import LedgerError
from kernwright.judge.record.recorded import recorded_bodies
from kernwright.judge.record.verdict import Headline, MetricResult, RowVerdict, Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.mcp.answer import LedgerPath, Limit, NextCall, Offset, PagedAnswer, ToolAnswer, call, page_of
from kernwright.mcp.folders import CANDIDATES, AllowedFolders
from kernwright.mcp.tools.scores import LedgerScores, ScoreCache
from kernwright.report.scoreboard.score import Score, best_scores

MOST_REASONS = 8
LONGEST_REASON = 600
MOST_PROBLEMS = 20

RunGiven = Annotated[str, Field(description="id of a run, or a unique part of one", min_length=4)]


class ScoreEntry(BaseModel):
    """One verdict of a list."""

    run: str
    task: str
    candidate: str
    baseline: str
    device: str
    metric: str = Field(description="the metric that decided")
    verdict: str
    speedup: float | None = Field(description="time of the baseline over that of the candidate")
    interval: tuple[float, float] | None
    rows: int
    evidence: bool = Field(description="false for quick and seeded runs")
    best: bool = Field(description="the highest proven speedup of the same rows, baseline and device")


class VerdictList(PagedAnswer):
    """Verdicts of a ledger."""

    ledger: str
    verdicts: list[ScoreEntry]
    damaged: dict[str, str] = Field(default_factory=dict, description="runs that cannot be read, with the cause")


class MetricEntry(BaseModel):
    """One metric over all timed rows."""

    outcome: str | None = None
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    worst_row: str | None = None
    worst_speedup: float | None = None
    unavailable: str | None = Field(default=None, description="why the metric was not measured")


class RowResult(BaseModel):
    """The verdict on one row, in the deciding metric."""

    id: str
    verdict: str
    speedup: float | None
    interval: tuple[float, float] | None
    baseline_us: float | None
    candidate_us: float | None
    reasons: list[str]


class VerdictCard(PagedAnswer):
    """One verdict. `total` and `next_offset` count its rows."""

    run: str
    ledger: str
    task: str
    candidate: str
    baseline: str
    verdict: str
    evidence: bool
    quick: bool
    interrupted: bool
    metric: str
    metrics: dict[str, MetricEntry]
    reasons: list[str]
    rows: list[RowResult]
    advice: str | None = Field(default=None, description="what to do next, in a sentence; after `judge` only")
    failing_case: FailingCase | None = Field(
        default=None, description="inputs and sizes of the first call that failed; after `judge` only"
    )
    seed: str | None = Field(
        default=None, description="seed that repeats the inputs of a faulty verdict; text, since it has 63 bits"
    )


class LedgerReport(ToolAnswer):
    """The result of checking a ledger."""

    ledger: str
    sound: bool
    runs: int
    records: int
    problems: list[str]
    notes: list[str]


class VerdictTools:
    """Answers from ledgers."""

    def __init__(self, folders: AllowedFolders, cache: ScoreCache) -> None:
        self._folders = folders
        self._cache = cache

    def verdicts_list(
        self,
        task: Annotated[str | None, Field(description="only verdicts of this task")] = None,
        candidate: Annotated[str | None, Field(description="only verdicts of this candidate")] = None,
        verdict: Annotated[str | None, Field(description="only this outcome, such as faster")] = None,
        ledger: LedgerPath = None,
        offset: Offset = 0,
        limit: Limit = 20,
    ) -> VerdictList:
        """List the verdicts of a ledger, newest first."""
        found = self._read(ledger)
        best = best_scores(found.all)
        chosen = [
            score
            for score in reversed(found.all)
            if (task is None or score.task == task)
            and (candidate is None or score.candidate == candidate)
            and (verdict is None or score.verdict == verdict)
        ]
        return self._listed(found, chosen, best, ledger, offset, limit)

    def scoreboard(
        self,
        task: Annotated[str | None, Field(description="only this task")] = None,
        baseline: Annotated[str | None, Field(description="only this baseline")] = None,
        ledger: LedgerPath = None,
        offset: Offset = 0,
        limit: Limit = 20,
    ) -> VerdictList:
        """List the best proven verdict for each combination of task, rows, baseline, device and metric."""
        found = self._read(ledger)
        best = best_scores(found.all)
        chosen = [
            score
            for score in best
            if (task is None or score.task == task) and (baseline is None or score.baseline == baseline)
        ]
        chosen.sort(key=lambda score: (*score.group, -(score.speedup or 0.0), score.run))
        return self._listed(found, chosen, best, ledger, offset, limit)

    def verdict_show(
        self,
        run: RunGiven,
        ledger: LedgerPath = None,
        offset: Offset = 0,
        limit: Limit = 10,
    ) -> VerdictCard:
        """Show one verdict: outcome, reasons, the speedup in each metric, and a page of its rows."""
        root = self._folders.ledger(ledger)
        return card_of(self.verdict(run, root), self._folders.shown(root), ledger, offset, limit)

    def ledger_verify(self, ledger: LedgerPath = None) -> LedgerReport:
        """Check that no record, head or blob of a ledger was changed."""
        from kernwright.ledger.verify import examine

        root = self._folders.ledger(ledger)
        result = examine(root)
        problems = [str(problem) for problem in result.problems]
        return LedgerReport(
            ledger=self._folders.shown(root),
            sound=not problems,
            runs=len(result.runs),
            records=sum(summary.records for summary in result.runs.values()),
            problems=_cut(problems, MOST_PROBLEMS),
            notes=_cut(list(map(str, result.notes)), MOST_PROBLEMS),
            next=[call("scoreboard", "see the best verdicts", ledger=ledger)],
        )

    def verdict(self, run: str, root: Path) -> Verdict:
        """Return the verdict of a run, whose id may be a unique part of one."""
        known = self._cache.read(root).ledger
        name = known.find_run(run)
        return verdict_of(known, name)

    def _read(self, ledger: str | None) -> LedgerScores:
        root = self._folders.ledger(ledger)
        if ledger is None and not root.exists():
            return LedgerScores(Ledger(root))  # nothing was judged yet
        return self._cache.read(root)

    def _listed(
        self,
        found: LedgerScores,
        chosen: list[Score],
        best: set[Score],
        ledger: str | None,
        offset: int,
        limit: int,
    ) -> VerdictList:
        shown, paging = page_of(chosen, offset, limit)
        after = (
            [call("verdict_show", "see reasons and rows", run=shown[0].run, ledger=ledger)]
            if shown
            else [call("tasks_list", "find a task to judge a candidate on")]
        )
        return VerdictList(
            ledger=self._folders.shown(found.ledger.root),
            verdicts=[_score_entry(score, score in best) for score in shown],
            damaged=dict(list(found.damaged.items())[:MOST_PROBLEMS]),
            next=after,
            **paging,
        )


def verdict_of(ledger: Ledger, run: str) -> Verdict:
    """Return the verdict that a run holds."""
    found = [record.verdict() for record in recorded_bodies(ledger, runs=[run])]
    if not found:
        raise LedgerError(f"run {run} has no verdict", "the run stopped early or is of another kind: judge again")
    return found[-1]


def card_of(
    verdict: Verdict,
    shown_ledger: str,
    ledger: str | None,
    offset: int = 0,
    limit: int = 10,
    judged: dict[str, Any] | None = None,
) -> VerdictCard:
    """Return a verdict as an answer.

    Args:
        ledger: the ledger as the client named it.
        judged: the arguments of the call of `judge` that led to it, if there was one.
    """
    worst_first = sorted(verdict.rows, key=lambda row: row.verdict not in FAULTS)
    rows, paging = page_of(worst_first, offset, limit)
    return VerdictCard(
        run=verdict.run,
        ledger=shown_ledger,
        task=verdict.task,
        candidate=verdict.candidate,
        baseline=verdict.baseline,
        verdict=verdict.verdict,
        evidence=verdict.evidence,
        quick=verdict.quick,
        interrupted=verdict.interrupted,
        metric=verdict.metric,
        metrics={name: _metric(headline) for name, headline in verdict.headline.items()},
        reasons=_cut(list(verdict.reasons), MOST_REASONS),
        rows=[_row(row, verdict.metric) for row in rows],
        seed=_seed(verdict) if verdict.verdict in FAULTS else None,
        next=next_calls(verdict, ledger, judged),
        **paging,
    )


def next_calls(verdict: Verdict, ledger: str | None, judged: dict[str, Any] | None) -> list[NextCall]:
    """Return the useful calls after a verdict."""
    shown = call("verdict_show", "see its rows", run=verdict.run, ledger=ledger)
    if judged is None:
        return [call("task_show", "read the task", task=verdict.task)]
    again = {name: value for name, value in judged.items() if name not in ("quick", "seed")}
    if verdict.interrupted:
        return [call("judge", "judge all rows", **judged)]
    if verdict.verdict in FAULTS:
        folder = Path(str(judged["candidate"]))
        edit = call("candidate_write", "correct the candidate; the reasons name the fault", name=folder.name)
        faulty = next((row.id for row in verdict.rows if row.verdict in FAULTS), None)
        return [
            *([edit] if folder.parent.name == CANDIDATES else []),
            call(
                "judge",
                "then repeat the first faulty row with the same inputs",
                **(again | {"rows": faulty, "quick": True, "seed": _seed(verdict)}),
            ),
            shown,
        ]
    if verdict.quick:
        return [call("judge", "full run, which is evidence", **again)]
    if verdict.verdict == "inconclusive":
        return [call("judge", "judge again when the machine is idle", **again), shown]
    if verdict.verdict != "slower" and judged.get("baseline", "eager") == "eager":
        return [call("judge", "a stronger baseline", **(again | {"baseline": "compile"})), shown]
    return [shown, call("scoreboard", "compare with earlier candidates", task=verdict.task, ledger=ledger)]


def _seed(verdict: Verdict) -> str | None:
    seed = verdict.provenance.get("seed")
    return str(seed) if isinstance(seed, int) else None


def _score_entry(score: Score, best: bool) -> ScoreEntry:
    return ScoreEntry(
        run=score.run,
        task=score.task,
        candidate=score.candidate,
        baseline=score.baseline,
        device=score.device,
        metric=score.metric,
        verdict=score.verdict,
        speedup=score.speedup,
        interval=score.interval,
        rows=len(score.rows),
        evidence=score.evidence,
        best=best,
    )


def _metric(headline: Any) -> MetricEntry:
    if not isinstance(headline, Headline):
        return MetricEntry(unavailable=headline.unavailable)
    return MetricEntry(
        outcome=headline.outcome,
        speedup=headline.geomean,
        interval=headline.interval,
        worst_row=headline.worst_row,
        worst_speedup=headline.worst_ratio,
    )


def _row(row: RowVerdict, metric: str) -> RowResult:
    found = row.metrics.get(metric)  # type: ignore[call-overload]
    result = found if isinstance(found, MetricResult) else None
    return RowResult(
        id=row.id,
        verdict=row.verdict,
        speedup=result.ratio if result else None,
        interval=result.interval if result else None,
        baseline_us=result.baseline_us if result else None,
        candidate_us=result.candidate_us if result else None,
        reasons=_cut(list(row.reasons), MOST_REASONS),
    )


def _cut(lines: list[str], most: int) -> list[str]:
    """Return the first lines, each of a limited length."""
    kept = [line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..." for line in lines[:most]]
    return [*kept, f"and {len(lines) - most} more"] if len(lines) > most else kept
