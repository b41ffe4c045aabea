"""A campaign that the commands of a user carry from its start to a promoted kernel, and the parts of its way."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from made_promotable import KERNEL, TOML, git, make_repository, make_task, write_trace
from typer.testing import CliRunner

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.lookup import find_campaign
from kernwright.cli.main import app

# The agent replaces the starting version by the good kernel of made_promotable.
AGENT = f"""
import json
from pathlib import Path
solution = Path("solution")
(solution / "kernel.py").unlink()
(solution / "candidate.toml").write_text({TOML!r})
(solution / "kernel.cc").write_text({KERNEL!r})
idea = {{"hypothesis": "one pass instead of five operators", "direction": "fusion", "predicted_ratio": 3.0}}
Path("idea.json").write_text(json.dumps(idea))
"""
REVIEWER = 'open("findings.json", "w").write(\'{"decision": "approved", "why": "read diff.patch and all sources"}\')'


def command(*words: str) -> str:
    """Return the output of a command of `kernwright campaign`, which must succeed."""
    result = CliRunner().invoke(app, ["campaign", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@dataclass(frozen=True)
class CommandedCampaign:
    """A campaign in a checkout of Kernwright, which is the working directory of all commands.

    Attributes:
        folder: contains the repository, the task and everything that commands are given.
        main: the commit from which the campaign was started.
    """

    folder: Path
    campaign: Campaign
    main: str

    @classmethod
    def started(cls, folder: Path, *options: str) -> CommandedCampaign:
        """Start a campaign of one iteration about a new task in a new repository."""
        task = make_task(folder / "turns")
        repository = make_repository(folder / "repository")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(repository)
            words = ["start", str(task), "--name", "turns", "--baseline", "slow", "--iterations", "1", *options]
            assert "campaign run turns" in command(*words)
            return cls(folder=folder, campaign=find_campaign(), main=git(repository, "rev-parse", "main"))

    @classmethod
    def with_agent(cls, folder: Path) -> CommandedCampaign:
        """Start a campaign whose agent is a program that writes the good kernel."""
        (folder / "agent.py").write_text(AGENT)
        agent = shlex.join([sys.executable, str(folder / "agent.py")])
        return cls.started(folder, "--op", "rotary", "--agent", "command", "--agent-command", agent)

    @property
    def repository(self) -> Path:
        return self.campaign.settings.repository

    def command(self, *words: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.repository)
            return command(*words)

    def improve(self) -> None:
        """Run the iteration. The best version is then judged faster, and confirmed."""
        assert "ended: all 1 iteration(s) of the budget are used" in self.command("run")
        best = self.campaign.history().best
        assert best is not None and best.edited is not None and best.ended is not None
        assert best.started.agent == self.campaign.settings.agent and best.ended.confirmed_run is not None
        assert best.edited.ending == "finished" and best.edited.idea is not None, best.edited.reason
        assert best.started.agent != "command" or best.edited.idea.direction == "fusion"

    def promote(self, *reviewer: str) -> None:
        """Review the best version, check a model and promote."""
        assert "recorded: approved by" in self.command("review", *reviewer)
        trace = write_trace(self.folder / "trace.json")
        assert self.command("check-model", "--arithmetic", f"{trace}:2").startswith("passes")
        assert "NOT MET" not in self.command("promote")


REVIEWED_BY_PROGRAM = ("--reviewer-command", shlex.join([sys.executable, "-c", REVIEWER]))
