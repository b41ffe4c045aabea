"""Find an agent by its name."""

from __future__ import annotations

from pathlib import Path

from kernwright.campaign.agents.agent import Agent
from kernwright.campaign.agents.human import Human
from kernwright.campaign.agents.preset import find_preset
from kernwright.campaign.agents.program_agent import ProgramAgent

TUNER, HUMAN = "tuner", "human"


def find_agent(name: str, repository: Path, command: str | None = None, walls: bool = True) -> Agent:
    """Return the agent `name`: tuner, human, command, or a preset. Raise if it is unknown or its program is missing.

    `command` is the command line of the agent `command`. Without `walls` a program may write wherever its user may;
    changes of protected files are then found only afterwards.
    """
    if name == HUMAN:
        return Human()
    if name == TUNER:
        from kernwright.campaign.tuning.search import require_optuna
        from kernwright.campaign.tuning.tuner_agent import TunerAgent

        require_optuna()
        return TunerAgent()
    return ProgramAgent(name, find_preset(name, repository, command), walls)
