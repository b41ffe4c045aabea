"""A campaign in a git repository of its own, with a worktree, a candidate and a ledger."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.settings import CampaignSettings
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.task import load_task

IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@localhost")


def make_campaign(folder: Path, task_folder: Path, name: str = "quick", op: str = "twice") -> Campaign:
    """Return a campaign as `campaign start` leaves it, with an empty solution/."""
    task = load_task(task_folder)
    repository = folder / "repository"
    repository.mkdir()

    def git(*words: str) -> str:
        command = ["git", *IDENTITY, "-C", str(repository), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q", "-b", "main")
    (repository / "other.txt").write_text("other\n")
    git("add", "-A")
    git("commit", "-q", "-m", "Begin")
    settings = CampaignSettings(
        name=name, task=str(task.folder), task_digest=task.digest, op=op, baseline_digest="0" * 64, metric="stream",
        language="python", agent="command", repository=repository, base_commit=git("rev-parse", "HEAD"),
        ledger=folder / "ledger",
    )  # fmt: skip
    own = Campaign(settings)
    own.folder.mkdir(parents=True)
    (own.folder / "settings.json").write_text(settings.model_dump_json())
    git("worktree", "add", "-q", "-b", own.branch, str(own.worktree))
    own.solution.mkdir(parents=True)
    with Ledger(own.settings.ledger).open_run({"tool": "test"}) as run:
        run.append("verdict", {"candidate": name, "verdict": "same"})
    return own
