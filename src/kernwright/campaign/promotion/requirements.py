"""The requirements of a promotion: which of them are met, and a command for each one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kernwright.baselines.lookup import find_baseline
from kernwright.campaign.best_version import BestVersion
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.history import History
from kernwright.campaign.promotion.judged_runs import FULL_RUNS, JudgedRuns
from kernwright.campaign.record import ModelCheck
from kernwright.campaign.review.findings import ReviewState
from kernwright.campaign.version_verdicts import deciding_headline
from kernwright.core.errors import KernwrightError
from kernwright.ledger.verify import examine
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class PromotionRequirement:
    """One requirement. `why` says what is missing or what was found; `command` helps where it is not met."""

    name: str
    is_met: bool
    why: str
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class PromotionCase:
    """The best version of a campaign with its evidence, and the requirements of its promotion."""

    campaign: Campaign
    history: History
    version: BestVersion
    task: Task
    runs: JudgedRuns

    @classmethod
    def of(cls, campaign: Campaign) -> PromotionCase:
        """Return the case of the best version. Raise KernwrightError if there is none."""
        history = campaign.history()
        version, task = BestVersion.of(campaign, history), find_task(campaign.settings.task)
        runs = JudgedRuns.of(campaign, task, history, version.digest)
        return cls(campaign=campaign, history=history, version=version, task=task, runs=runs)

    @cached_property
    def requirements(self) -> list[PromotionRequirement]:
        """Return all requirements, met or not."""
        return [
            self._digests(), self._correct(), *self._fresh_seeds(), self._floor(), self._model(), self._review(),
            self._ledger(),
        ]  # fmt: skip

    @property
    def missing(self) -> list[PromotionRequirement]:
        return [own for own in self.requirements if not own.is_met]

    @property
    def _again(self) -> str:
        return f"kernwright campaign promote {self.campaign.name}"

    def digest_problem(self) -> str | None:
        """Return what changed since the campaign began, the task or its baseline; None if nothing changed."""
        settings = self.campaign.settings
        if self.task.digest != settings.task_digest:
            return f"task {self.task.name} changed since the campaign began"
        try:
            baseline = find_baseline(self.task, settings.baseline)
        except KernwrightError as error:
            return f"baseline {settings.baseline} is not there: {error.cause}"
        return None if baseline.digest == settings.baseline_digest else f"baseline {settings.baseline} changed"

    def _digests(self) -> PromotionRequirement:
        problem = self.digest_problem()
        return PromotionRequirement(
            name="task and baseline unchanged",
            is_met=problem is None,
            why=problem or "digests as at the start",
            command=f"kernwright campaign start {self.campaign.settings.task}   # a campaign on the present task",
        )

    def _correct(self) -> PromotionRequirement:
        wrong = [v for v in self.runs.verdicts if v.verdict in ("incorrect", "tampered", "failed")]
        grid = self.runs.grid_run
        if wrong:
            why = f"run {wrong[-1].run} ended {wrong[-1].verdict}: {'; '.join(wrong[-1].reasons[:2])}"
        elif grid is None:
            why = f"no run on all rows ({self.runs.full_rows})"
        else:
            why = f"run {grid.run}: {len(grid.rows)} rows ({self.runs.full_rows})"
        return PromotionRequirement(
            name="correct on the full grid",
            is_met=not wrong and grid is not None,
            why=why,
            command=f"kernwright campaign show {self.campaign.name}   # why it failed" if wrong else self._again,
        )

    def _fresh_seeds(self) -> Iterator[PromotionRequirement]:
        runs = self.runs.full_runs
        yield PromotionRequirement(
            name="judged again with fresh seeds",
            is_met=len(runs) >= FULL_RUNS,
            why=f"{len(runs)} of {FULL_RUNS} evidence runs on all rows of the campaign ({self.runs.headline_rows})",
            command=self._again,
        )
        latest = runs[-FULL_RUNS:]
        words = []
        for verdict in latest:
            headline = deciding_headline(verdict)
            words.append(f"{verdict.verdict}{f' {headline.geomean:.3f}x' if headline else ''} in {verdict.run}")
        yield PromotionRequirement(
            name="faster on the headline",
            is_met=bool(latest) and all(verdict.verdict == "faster" for verdict in latest),
            why="; ".join(words) or "no full run",
            command=f"kernwright campaign run {self.campaign.name}   # a better version" if latest else self._again,
        )

    def _floor(self) -> PromotionRequirement:
        under = self.runs.rows_under_the_floor()
        return PromotionRequirement(
            name="no row is slower",
            is_met=not under and bool(self.runs.full_runs),
            why=f"slower than the baseline by more than the noise band: {', '.join(under[:6])}"
            if under
            else f"{len(self.runs.full_runs)} full runs",
            command=f"kernwright campaign run {self.campaign.name}   # a better version" if under else self._again,
        )

    @property
    def model_check(self) -> ModelCheck | None:
        """Return the latest check of a model on this version."""
        found = [own for own in self.history.all(ModelCheck) if own.candidate_digest == self.version.digest]
        return found[-1] if found else None

    def _model(self) -> PromotionRequirement:
        check = self.model_check
        command = f"kernwright campaign check-model {self.campaign.name}"
        return PromotionRequirement(
            name="a model became faster, or the op's share is too small to measure",
            is_met=check is not None and check.improved,
            why="no check of a model with this version" if check is None else check.summary,
            command=f"{command} --swap BASE_LABEL NEW_LABEL, or {command} --arithmetic TRACE:RANK",
        )

    def _review(self) -> PromotionRequirement:
        obstacle = ReviewState.of(self.history, self.version.digest).obstacle
        decision = ReviewState.of(self.history, self.version.digest).decision
        return PromotionRequirement(
            name="an approved review of this version, without open findings",
            is_met=obstacle is None,
            why=obstacle or f"approved by {decision[1].reviewer if decision else ''}",
            command=f"kernwright campaign review {self.campaign.name}",
        )

    def _ledger(self) -> PromotionRequirement:
        problems = examine(self.campaign.settings.ledger).problems if self.campaign.ledger.exists else []
        return PromotionRequirement(
            name="a sound ledger",
            is_met=not problems,
            why=str(problems[0]) if problems else "no record was changed",
            command=f"kernwright ledger verify --ledger {self.campaign.settings.ledger}",
        )
