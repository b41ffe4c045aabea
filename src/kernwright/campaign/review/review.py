"""Review the best version of a campaign, by a program or by a person, and record the outcome in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernwright.campaign.best_version import BestVersion
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.history import History
from kernwright.campaign.record import CampaignBody, ReviewFinding, ReviewGiven
from kernwright.campaign.repository import Repository
from kernwright.campaign.review.checklist import read_checklist
from kernwright.campaign.review.findings import ANSWER_FILE, ReviewState, numbered, read_answer
from kernwright.campaign.review.review_folder import ReviewFolder
from kernwright.campaign.review.reviewer import run_reviewer
from kernwright.core.errors import KernwrightError
from kernwright.judge.record.provenance import command_line
from kernwright.ledger.blobs import blob_reference


@dataclass(frozen=True)
class Review:
    """A review of the version that is the best when the review begins."""

    campaign: Campaign

    @property
    def history(self) -> History:
        return self.campaign.history()

    def prepare(self) -> Path:
        """Write the folder for a reviewer and return its path."""
        history = self.history
        return ReviewFolder(version=BestVersion.of(self.campaign, history), history=history).write()

    def by_program(
        self,
        reviewer: str,
        command: str | None = None,
        time_limit_s: float | None = None,
        heard: Callable[[str], None] = lambda line: None,
    ) -> ReviewGiven:
        """Run a program as the reviewer and record its answer.

        Args:
            reviewer: name of a preset, or `command`.
            command: the command line of the reviewer `command`.
            heard: receives lines of the program's output.

        Raises:
            KernwrightError: the program is missing, ended with an error, or left no valid answer. Nothing is recorded.
        """
        history = self.history
        version = BestVersion.of(self.campaign, history)
        folder = ReviewFolder(version=version, history=history).write()
        transcript = run_reviewer(self.campaign, folder, reviewer, command, time_limit_s, heard)
        answer = read_answer(folder / ANSWER_FILE, read_checklist().ids)
        decision = "findings" if answer.findings and answer.decision == "approved" else answer.decision
        blob = self.campaign.ledger.write_blob(transcript)
        return self._record(
            version,
            reviewer=f"program {reviewer}",
            decision=decision,
            why=answer.why,
            findings=numbered(answer.findings, history),
            transcript=blob_reference(blob),
        )

    def by_person(self, decision: Literal["approved", "rejected"], why: str = "") -> ReviewGiven:
        """Record the decision of the person whom git's configuration names."""
        history = self.history
        version = BestVersion.of(self.campaign, history)
        found = ReviewState.of(history, version.digest).open_findings
        if decision == "approved" and found:
            raise KernwrightError(
                f"{len(found)} findings are open: {', '.join(own.id for own in found)}",
                f"close each: kernwright campaign review {self.campaign.name} --close {found[0].id} --why TEXT",
            )
        if decision == "rejected" and not why:
            raise KernwrightError("a rejection needs a reason", "add --why TEXT")
        return self._record(version, reviewer=f"person {self._person()}", decision=decision, why=why)

    def close(self, finding: str, why: str) -> ReviewGiven:
        """Record that a finding no longer holds, and why."""
        history = self.history
        version = BestVersion.of(self.campaign, history)
        known = [own.id for own in ReviewState.of(history, version.digest).open_findings]
        if finding not in known:
            raise KernwrightError(
                f"{finding} is not an open finding of the best version",
                f"open findings: {', '.join(known) or 'none'}",
            )
        if not why:
            raise KernwrightError("closing a finding needs a reason", "add --why TEXT")
        person = self._person()
        return self._record(version, reviewer=f"person {person}", decision="findings", why=why, closed=(finding,))

    def _person(self) -> str:
        """Return the person in git's configuration as `NAME <EMAIL>`."""
        repository = Repository(self.campaign.settings.repository)
        name, email = repository.configured("user.name"), repository.configured("user.email")
        if not name:
            raise KernwrightError(
                "git knows no user name, and a review by a person is recorded with one",
                'set it: git config user.name "YOUR NAME"',
            )
        return f"{name} <{email}>" if email else name

    def _record(
        self,
        version: BestVersion,
        *,
        reviewer: str,
        decision: Literal["approved", "rejected", "findings"],
        why: str,
        findings: Sequence[ReviewFinding] = (),
        closed: Sequence[str] = (),
        transcript: str | None = None,
    ) -> ReviewGiven:
        given = ReviewGiven(
            campaign=self.campaign.name,
            reviewer=reviewer,
            candidate_digest=version.digest,
            commit=version.commit,
            decision=decision,
            why=why,
            findings=tuple(findings),
            closed=tuple(closed),
            transcript=transcript,
        )
        record_in_own_run(self.campaign, given)
        return given


def record_in_own_run(campaign: Campaign, *bodies: CampaignBody) -> str:
    """Append records of a campaign in a new run of its ledger, and return the run's id."""
    with campaign.ledger.open_run({"campaign": campaign.name, "command": command_line()}) as writer:
        for body in bodies:
            writer.append(body.kind, body.model_dump(mode="json"))
        return writer.run
