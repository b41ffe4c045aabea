"""A campaign with a worktree and a candidate, for agents to work on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.campaign.agents.agent import Assignment
from kernwright.campaign.agents.guard import places
from kernwright.campaign.agents.lookup import find_agent
from kernwright.campaign.agents.program_agent import ProgramAgent
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.settings import CampaignSettings
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.task import load_task

IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@localhost")


@pytest.fixture
def campaign(
    tmp_path: Path, write_doubling: Callable[..., Path], write_candidate: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Campaign:  # fmt: skip
    task = load_task(write_doubling(tmp_path / "tasks" / "doubling", 32))
    package = tmp_path / "package"
    (package / "judge").mkdir(parents=True)
    (package / "judge" / "contracts.py").write_text("LIMIT = 1.5\n")
    monkeypatch.setattr(places, "PACKAGE", package)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *IDENTITY, "-C", str(repository), *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q", "-b", "main")
    (repository / "other.txt").write_text("other\n")
    git("add", "-A")
    git("commit", "-q", "-m", "Begin")
    settings = CampaignSettings(
        name="quick", task=str(task.folder), task_digest=task.digest, op="twice", baseline_digest="0" * 64,
        metric="stream", language="python", agent="command", repository=repository,
        base_commit=git("rev-parse", "HEAD"), ledger=tmp_path / "ledger",
    )  # fmt: skip
    own = Campaign(settings)
    own.folder.mkdir(parents=True)
    (own.folder / "settings.json").write_text(settings.model_dump_json())
    git("worktree", "add", "-q", "-b", own.branch, str(own.worktree))
    write_candidate(own.solution, "def run(x):\n    return x + x\n", op="twice")
    (own.agent_folder / "prompt.md").write_text("the card\n")
    with Ledger(own.settings.ledger).open_run({"tool": "test"}) as run:
        run.append("verdict", {"candidate": "quick", "verdict": "same"})
    return own


@pytest.fixture
def program(campaign: Campaign, tmp_path: Path) -> Callable[..., ProgramAgent]:
    """Return an agent that is a Python program. The program knows the folders of the campaign by name."""

    def make(*sources: str, walls: bool = True) -> ProgramAgent:
        path = tmp_path / "agent.py"
        known = {
            "REPOSITORY": campaign.settings.repository, "WORKTREE": campaign.worktree, "FOLDER": campaign.agent_folder,
            "SOLUTION": campaign.solution, "TASK": campaign.settings.task, "LEDGER": campaign.settings.ledger,
            "CAMPAIGN": campaign.folder, "PACKAGE": places.PACKAGE, "HOME": Path.home(), "OUTSIDE": tmp_path,
        }  # fmt: skip
        head = "import json, os, subprocess, sys, time\nfrom pathlib import Path\n"
        folders = "".join(f"{name} = Path({str(value)!r})\n" for name, value in known.items())
        path.write_text(head + folders + "\n".join(map(textwrap.dedent, sources)))
        command = f"{sys.executable} -S {path}"
        found = find_agent("command", campaign.settings.repository, command, walls)
        assert isinstance(found, ProgramAgent)
        return found

    return make


@pytest.fixture
def assignment(campaign: Campaign) -> Assignment:
    return Assignment(campaign, 3, time_limit_s=60.0, avoid_directions=("unroll", "stages"))
