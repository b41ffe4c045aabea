"""Find an agent by its name."""

from __future__ import annotations

from pathlib import Path

from kernwright.campaign.agents.agent import Agent
from kernwright.core.errors import KernwrightError


def find_agent(name: str, repository: Path, command: str | None = None, walls: bool = True) -> Agent:
    """Return the agent `name`: tuner, human, command, or a preset. Raise if it is unknown or its program is missing.

    `command` is the command line of the agent `command`. Without `walls` a program may write wherever its user may;
    changes of protected files are then found only afterwards.
    """
    raise KernwrightError(f"no agent is called {name!r}")
