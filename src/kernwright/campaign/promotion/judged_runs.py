"""The judgements that a promotion needs: all rows of the grid, and a second full run with fresh seeds."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.campaign.best_version import BestVersion
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.history import History
from kernwright.campaign.record import VersionJudged
from kernwright.campaign.review.review import record_in_own_run
from kernwright.campaign.version_verdicts import deciding_result, verdicts_on
from kernwright.core.errors import KernwrightError
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.request import JudgeRequest, judge
from kernwright.judge.rounds.progress import Progress
from kernwright.tasks.task import Task

FULL_RUNS = 2  # evidence runs on all rows of the campaign, each with its own seeds
WAIT_S = 600.0  # for a device that another judgement uses


@dataclass(frozen=True, kw_only=True)
class JudgedRuns:
    """The evidence on one version.

    Attributes:
        verdicts: all verdicts that count, oldest first.
    """

    campaign: Campaign
    task: Task
    verdicts: Sequence[Verdict]

    @classmethod
    def of(cls, campaign: Campaign, task: Task, history: History, digest: str) -> JudgedRuns:
        return cls(campaign=campaign, task=task, verdicts=verdicts_on(campaign, history, digest))

    @property
    def headline_rows(self) -> str:
        """Return the rows of the campaign, as the judge takes them."""
        settings = self.campaign.settings
        return settings.rows or ("smoke" if settings.device == "cpu" else "production")

    @property
    def full_rows(self) -> str:
        """Return all rows that this device can judge, as the judge takes them: the campaign's rows, smoke and grid.

        Production rows are sized for a GPU, so on a CPU they count only if the campaign names them.
        """
        sets = ("grid", "smoke") if self.campaign.settings.device == "cpu" else ("grid", "smoke", "production")
        there = {row.set for row in (*self.task.rows, *self.task.grid_rows) if row.op == self.campaign.settings.op}
        return ",".join(dict.fromkeys([*self.headline_rows.split(","), *(name for name in sets if name in there)]))

    def _covering(self, pattern: str) -> list[Verdict]:
        wanted = {row.id for row in self.task.select(pattern, self.campaign.settings.op)}
        return [verdict for verdict in self.verdicts if wanted <= {row.id for row in verdict.rows}]

    @property
    def grid_run(self) -> Verdict | None:
        """Return the latest verdict on all rows."""
        return next(reversed(self._covering(self.full_rows)), None)

    @property
    def full_runs(self) -> list[Verdict]:
        """Return the verdicts on all rows of the campaign."""
        return self._covering(self.headline_rows)

    @property
    def missing(self) -> list[str]:
        """Return the rows of each judgement that is missing. A run on all rows is a full run, too."""
        wanted = [self.full_rows] if self.grid_run is None else []
        return wanted + [self.headline_rows] * max(0, FULL_RUNS - len(self.full_runs) - len(wanted))

    def rows_under_the_floor(self) -> list[str]:
        """Return the rows of the full runs that are slower than the baseline by more than their noise band."""
        found = {}
        for verdict in self.full_runs:
            for row in verdict.rows:
                result = deciding_result(verdict, row)
                if row.verdict == "slower" or (result and result.ratio * (1.0 + result.noise_band) < 1.0):
                    found[row.id] = f"{row.id} ({result.ratio:.3f}x)" if result else row.id
        return list(found.values())


def judge_version(version: BestVersion, rows: str, progress: Progress) -> Verdict:
    """Judge the best version with fresh seeds and record that this campaign asked for it."""
    settings = version.campaign.settings
    with tempfile.TemporaryDirectory(prefix="kernwright-promote-") as scratch:
        candidate = version.write(Path(scratch) / version.campaign.name)
        if candidate.digest != version.digest:
            raise KernwrightError("the candidate changed while it was written", "repeat the command")
        verdict = judge(
            JudgeRequest(
                task=settings.task,
                candidate=candidate.folder,
                baseline=settings.baseline,
                rows=rows,
                device=settings.device,
                ledger=settings.ledger,
                metric=settings.metric,
                wait_s=WAIT_S,
            ),
            progress,
        )
    judged = VersionJudged(
        campaign=settings.name,
        candidate_digest=version.digest,
        commit=version.commit,
        verdict_run=verdict.run,
        rows=rows,
    )
    record_in_own_run(version.campaign, judged)
    return verdict
