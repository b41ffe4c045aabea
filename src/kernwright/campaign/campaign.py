"""Campaign: where the files of a campaign are, and how its records are read and written.

<repository>/.kernwright/campaigns/<name>/
    settings.json        CampaignSettings; equal to the record `campaign_started`
    page.html            page of the campaign, rewritten after each record
    .lock                held by the process that works on the campaign
    worktree/            git worktree on the branch kernwright/<name>
        campaigns/<name>/    the folder of the agent: card, reference, solution/, context/, ITERATIONS.md
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernwright.campaign.history import History
from kernwright.campaign.repository import Repository
from kernwright.campaign.settings import CampaignSettings
from kernwright.core.errors import KernwrightError
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

BRANCHES = "kernwright"  # a campaign's branch is kernwright/<name>


@dataclass(frozen=True)
class Campaign:
    """A campaign on this machine."""

    settings: CampaignSettings

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def folder(self) -> Path:
        return campaigns_folder(self.settings.repository) / self.name

    @property
    def worktree(self) -> Path:
        return self.folder / "worktree"

    @property
    def branch(self) -> str:
        return f"{BRANCHES}/{self.name}"

    def git(self, kept_open: tuple[int, ...] = ()) -> Repository:
        """Return the worktree as a repository. Raise KernwrightError if it was deleted."""
        if not (self.worktree / ".git").exists():
            raise KernwrightError(
                f"the worktree {self.worktree} of campaign {self.name} does not exist",
                "restore it from its branch: "
                f"`git -C {self.settings.repository} worktree add --force {self.worktree} {self.branch}`",
            )
        return Repository(self.worktree, kept_open)

    @property
    def agent_folder(self) -> Path:
        """Return the only folder that an agent may change."""
        return self.worktree / "campaigns" / self.name

    @property
    def solution(self) -> Path:
        """Return the candidate's folder. It is judged under the name of the campaign."""
        return self.agent_folder / "solution"

    @property
    def page(self) -> Path:
        """Return the page of the campaign, which is rewritten after each record."""
        return self.folder / "page.html"

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.settings.ledger)

    def history(self) -> History:
        return History.read(self.ledger, self.name)

    def task(self) -> Task:
        return find_task(self.settings.task)

    def rows(self) -> tuple[Workload, ...]:
        """Return the rows that the campaign is judged on."""
        own = self.settings
        return self.task().select(own.rows, own.op, default="smoke" if own.device == "cpu" else "production")


def campaigns_folder(repository: Path) -> Path:
    return repository / ".kernwright" / "campaigns"
