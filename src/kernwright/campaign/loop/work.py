"""CampaignWork: everything that one process needs to work on a campaign, and the steps that are not iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.files.agent_folder import write_generated_files
from kernwright.campaign.files.iterations_file import directions_text
from kernwright.campaign.loop.bottleneck import find_bottleneck, hottest_row
from kernwright.campaign.loop.judging import Judging
from kernwright.campaign.loop.outcome import row_figure
from kernwright.campaign.loop.stop_rules import avoided_directions
from kernwright.campaign.record import BaselineMeasured, CampaignEnded, LedgerReread, ProfileTaken
from kernwright.campaign.state.book import CampaignBook
from kernwright.campaign.state.standing import StandingVersion, standing_of, usage_of
from kernwright.campaign.state.versions import Versions
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.rounds.progress import Progress


@dataclass(frozen=True)
class CampaignWork:
    """A campaign that this process works on.

    Attributes:
        tell: gets lines of progress.
    """

    book: CampaignBook
    progress: Progress
    tell: Callable[[str], None]

    @property
    def campaign(self) -> Campaign:
        return self.book.campaign

    @property
    def versions(self) -> Versions:
        return Versions.of(self.book)

    @property
    def judging(self) -> Judging:
        return Judging(self.campaign, self.progress)

    @property
    def standing(self) -> StandingVersion:
        return standing_of(self.book.history)

    @property
    def standing_commit(self) -> str:
        """Return a commit with the standing version."""
        commit = self.standing.commit or self.versions.start
        if commit is None:
            raise KernwrightError(
                f"branch {self.campaign.branch} lacks the first commit of the campaign",
                "restore the branch, for instance with `git reflog`",
            )
        return commit

    @property
    def last_number(self) -> int:
        return self.book.history.iterations[-1].number if self.book.history.iterations else 0

    def export(self, commit: str) -> Path:
        """Write the candidate of a commit to the folder that is judged. Return it."""
        return self.versions.export(commit, self.judging.copy)

    def write_files(self) -> None:
        write_generated_files(self.campaign, self.book.history, avoided_directions(self.book.history))

    # Steps that are not iterations

    def measure_baseline(self) -> None:
        """Record the baseline's figures and its bottleneck, if that was not done."""
        if self.book.history.baseline is None:
            self.tell(f"baseline {self.campaign.settings.baseline} against itself")
            verdict = self.judging.baseline()
            rows = tuple(row_figure(row, verdict.metric) for row in verdict.rows)
            if not any(row.baseline_us for row in rows):
                raise EnvironmentProblem(
                    f"the baseline could not be timed: {'; '.join(verdict.reasons[:2]) or verdict.verdict}",
                    f"`kernwright ledger show {verdict.run}` has the details",
                )
            bottleneck = find_bottleneck(self.campaign, hottest_row(rows), self.campaign.settings.baseline, self.tell)
            self.book.append(
                BaselineMeasured(campaign=self.campaign.name, verdict_run=verdict.run, rows=rows, bottleneck=bottleneck)
            )
        if not self.book.history.iterations:
            self.write_files()
            self.versions.commit_notes("Record the baseline")

    def take_profile(self) -> ProfileTaken:
        """Profile the standing version on its hottest row and record what bounds it."""
        history = self.book.history
        best = history.best.ended if history.best else None
        rows = best.rows if best and best.rows else history.baseline.rows if history.baseline else ()
        if not rows:
            raise KernwrightError(
                "the baseline is not measured yet", "`kernwright campaign run` or `step` does it first"
            )
        commit = self.standing_commit
        self.tell(f"profile of {'the starting version' if best is None else f'iteration {self.standing.iteration}'}")
        bottleneck = find_bottleneck(self.campaign, hottest_row(rows), str(self.export(commit)), self.tell)
        taken = ProfileTaken(
            campaign=self.campaign.name, after_iteration=self.last_number, commit=commit, bottleneck=bottleneck
        )
        self.book.append(taken)
        self._record_notes(f"Profile after iteration {self.last_number}")
        return taken

    def reread(self) -> LedgerReread:
        """Read all iterations again from the ledger and record a summary of them."""
        history = self.campaign.history()
        usage = usage_of(history)
        best = (
            f"best: iteration {self.standing.iteration} with {self.standing.ratio:.3f}x over the baseline"
            if history.best
            else "no version is better than the start"
        )
        summary = f"{usage.iterations} idea(s); {directions_text(history)}; {best}"
        reread = LedgerReread(
            campaign=self.campaign.name,
            after_iteration=self.last_number,
            head=history.entries[-1].hash,
            summary=summary,
        )
        self.book.append(reread)
        self._record_notes(f"Read the ledger again after iteration {self.last_number}")
        return reread

    def end(self, reason: str) -> None:
        """Record the end of the campaign, unless it is the last record already."""
        last = self.book.history.entries[-1].body
        if not (isinstance(last, CampaignEnded) and last.reason == reason):
            best = self.book.history.best
            self.book.append(
                CampaignEnded(campaign=self.campaign.name, reason=reason, best_iteration=best.number if best else None)
            )

    def _record_notes(self, subject: str) -> None:
        if self.book.history.open_iteration is None:
            self.write_files()
            self.versions.commit_notes(subject)
