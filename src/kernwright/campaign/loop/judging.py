"""Judging: judgements of a campaign's versions. Only verdicts that this process asked the judge for count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.loop.outcome import Figures
from kernwright.campaign.settings import CampaignSettings
from kernwright.core.errors import BadFile, EnvironmentProblem, KernwrightError
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.request import NEEDS_CUDA, JudgeRequest, judge
from kernwright.judge.rounds.progress import Progress
from kernwright.tasks.candidate import Candidate, load_candidate
from kernwright.tasks.catalog import find_task

WAIT_S = 1800.0  # for the device, which another judge may use for several minutes


class NotJudged(KernwrightError):
    """A candidate cannot be judged because of its own files."""


@dataclass(frozen=True)
class Judging:
    """The judge with the settings of one campaign."""

    campaign: Campaign
    progress: Progress

    @property
    def settings(self) -> CampaignSettings:
        return self.campaign.settings

    @property
    def copy(self) -> Path:
        """Return the folder to which a version is copied before it is judged. Verdicts have the folder's name."""
        return self.campaign.folder / "judged" / self.campaign.name

    def candidate(self, folder: Path) -> Candidate:
        """Return the candidate of a folder.

        Raises:
            NotJudged: the folder is no candidate for the campaign's op and device.
        """
        try:
            candidate = load_candidate(folder)
            _ = candidate.digest
        except BadFile as error:
            raise NotJudged(str(error.cause).replace(str(folder), "solution"), error.remedy) from None
        if candidate.file.op != self.settings.op:
            raise NotJudged(
                f"solution/candidate.toml implements {candidate.file.op}",
                f'write op = "{self.settings.op}": the campaign is about this op',
            )
        if self.settings.device == "cpu" and candidate.file.language in NEEDS_CUDA:
            raise NotJudged(f"{candidate.file.language} does not run on a CPU", "write the candidate in C++ or Python")
        return candidate

    def version(self, folder: Path) -> Figures:
        """Judge a candidate against the campaign's baseline with fresh seeds. Return the figures of the verdict."""
        return Figures.of(self._judged(self._request(folder)))

    def baseline(self) -> Verdict:
        """Judge the baseline against itself."""
        rows = ",".join(row.id for row in self.campaign.rows())
        request = self._request(None)
        return self._judged(JudgeRequest(**{**vars(request), "rows": rows, "against_itself": True}))

    def _request(self, candidate: Path | None) -> JudgeRequest:
        own = self.settings
        return JudgeRequest(
            task=own.task, candidate=candidate, baseline=own.baseline, rows=own.rows, device=own.device,
            ledger=own.ledger, wait_s=WAIT_S, metric=own.metric,
        )  # fmt: skip

    def _judged(self, request: JudgeRequest) -> Verdict:
        """Return the verdict of a full run.

        Raises:
            KeyboardInterrupt: the run was interrupted; its verdict covers only some rows.
        """
        check_digests(self.settings)
        verdict = judge(request, self.progress)
        if verdict.interrupted:
            raise KeyboardInterrupt
        if (verdict.task_digest, verdict.baseline_digest) != (self.settings.task_digest, self.settings.baseline_digest):
            raise _changed("the task or the baseline", self.settings)
        return verdict


def check_digests(settings: CampaignSettings) -> None:
    """Refuse to judge if the task or the baseline is not the one that the campaign was started with."""
    from kernwright.baselines.lookup import find_baseline

    try:
        task = find_task(settings.task)
    except KernwrightError as error:
        raise EnvironmentProblem(f"the campaign's task cannot be loaded: {error.cause}", error.remedy) from None
    if task.digest != settings.task_digest:
        raise _changed(f"task {task.name}", settings)
    if find_baseline(task, settings.baseline).digest != settings.baseline_digest:
        raise _changed(f"baseline {settings.baseline}", settings)


def _changed(what: str, settings: CampaignSettings) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{what} changed since campaign {settings.name} was started, so that its verdicts cannot be compared",
        "restore it, or start a new campaign with --from and the best version",
    )
