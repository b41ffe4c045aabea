"""Find an agent by its name."""

from __future__ import annotations

from pathlib import Path

from kernwright.campaign.agents.agent import HUMAN, Agent
from kernwright.campaign.agents.preset import find_preset
from kernwright.campaign.agents.program_agent import ProgramAgent
from kernwright.core.errors import KernwrightError

TUNER = "tuner"


def find_agent(name: str, repository: Path, command: str | None = None, walls: bool = True) -> Agent:
    """Return the agent `name`: tuner, command, or a preset. Raise if it is unknown or its program is missing.

    `command` is the command line of the agent `command`. Without `walls` a program may write wherever its user may;
    changes of protected files are then found only afterwards.
    """
    if name == HUMAN:
        raise KernwrightError(
            "the agent is human, and a person's edits cannot be made unattended",
            "edit solution/, then: kernwright campaign step --hypothesis TEXT --direction TAG",
        )
    if name == TUNER:
        from kernwright.campaign.tuning.search import require_optuna
        from kernwright.campaign.tuning.tuner_agent import TunerAgent

        require_optuna()
        return TunerAgent()
    return ProgramAgent(name, find_preset(name, repository, command), walls)
