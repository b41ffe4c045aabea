"""BestVersion: the best version of a campaign's candidate, as git and the ledger have it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.history import History
from kernwright.campaign.repository import Repository
from kernwright.core.digest import folder_digest
from kernwright.core.errors import KernwrightError, LedgerError
from kernwright.tasks.candidate import Candidate, load_candidate


@dataclass(frozen=True, kw_only=True)
class BestVersion:
    """The candidate of the last iteration that improved.

    Attributes:
        number: the iteration.
        commit: its commit on the campaign's branch.
        digest: the digest of the candidate, which verdicts and reviews refer to.
        start: the commit before the first iteration.
    """

    campaign: Campaign
    number: int
    commit: str
    digest: str
    start: str

    @classmethod
    def of(cls, campaign: Campaign, history: History) -> BestVersion:
        """Return the best version. Raise KernwrightError if no iteration has improved."""
        best = history.best
        edited = best.edited if best is not None else None
        if best is None or edited is None or edited.commit is None or edited.candidate_digest is None:
            raise KernwrightError(
                f"campaign {campaign.name} has no version that is proven faster than its baseline",
                f"`kernwright campaign status {campaign.name}` says how it continues",
            )
        return cls(
            campaign=campaign,
            number=best.number,
            commit=edited.commit,
            digest=edited.candidate_digest,
            start=history.iterations[0].started.parent_commit,
        )

    @property
    def folder_in_git(self) -> PurePosixPath:
        return PurePosixPath(self.campaign.solution.relative_to(self.campaign.worktree).as_posix())

    @property
    def repository(self) -> Repository:
        return Repository(self.campaign.settings.repository)

    def files(self) -> dict[str, bytes]:
        """Return the sources in the commit, by path. Raise LedgerError if they are not those of the verdicts."""
        found = self.repository.contents(self.repository.files_at(self.commit, self.folder_in_git))
        if folder_digest(found) != self.digest:
            raise LedgerError(
                f"commit {self.commit[:12]} does not hold the candidate that iteration {self.number} was judged with",
                f"kernwright ledger verify --ledger {self.campaign.settings.ledger}",
            )
        return found

    def write(self, folder: Path) -> Candidate:
        """Write the sources into a folder, whose name becomes the candidate's, and return the candidate."""
        for name, data in self.files().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return load_candidate(folder)

    def diff(self) -> str:
        """Return the difference to the solution before the first iteration, as a patch."""
        options = ("--no-color", "--no-ext-diff", "--no-textconv")
        return self.repository.git("diff", *options, self.start, self.commit, "--", str(self.folder_in_git))
