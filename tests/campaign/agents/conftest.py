"""A campaign with a worktree and a candidate, for agents to work on."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from made_campaign import make_campaign

from kernwright.campaign.agents.agent import Assignment
from kernwright.campaign.agents.guard import places
from kernwright.campaign.agents.lookup import find_agent
from kernwright.campaign.agents.program_agent import ProgramAgent
from kernwright.campaign.campaign import Campaign


@pytest.fixture
def campaign(
    tmp_path: Path,
    write_doubling: Callable[..., Path],
    write_candidate: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Campaign:
    package, home = tmp_path / "package", tmp_path / "home"
    (package / "judge").mkdir(parents=True)
    (package / "judge" / "contracts.py").write_text("LIMIT = 1.5\n")
    home.mkdir()
    monkeypatch.setattr(places, "PACKAGE", package)
    monkeypatch.setenv("HOME", str(home))
    own = make_campaign(tmp_path, write_doubling(tmp_path / "tasks" / "doubling", 32))
    write_candidate(own.solution, "def run(x):\n    return x + x\n", op="twice")
    (own.agent_folder / "prompt.md").write_text("the card\n")
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
