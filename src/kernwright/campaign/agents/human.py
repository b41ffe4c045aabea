"""Human: a person edits the candidate, and says why with the options of `kernwright campaign step`."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.campaign.agents.agent import AgentResult, Assignment
from kernwright.campaign.agents.guard.agent_folder import remove_unsafe
from kernwright.campaign.agents.idea_file import IDEA_FILE, take_idea
from kernwright.core.errors import KernwrightError
from kernwright.judge.rounds.progress import Progress


@dataclass(frozen=True)
class Human:
    """Starts nothing: the edit was made before `campaign step`. An idea.json counts as for a program."""

    name: str = "human"

    def edit(self, assignment: Assignment, progress: Progress) -> AgentResult:
        campaign = assignment.campaign
        if not campaign.solution.is_dir():
            raise KernwrightError(
                f"{campaign.solution} does not exist",
                f"put the candidate there, then: kernwright campaign step {campaign.name}",
            )
        stated = take_idea(campaign.agent_folder) if (campaign.agent_folder / IDEA_FILE).exists() else None
        remove_unsafe(campaign.agent_folder, campaign.solution)
        if stated is None or stated.problem:
            return AgentResult(ending="finished", note=stated.problem if stated else "")
        return AgentResult(ending="finished", idea=stated.idea, note=stated.note, cost_usd=stated.cost_usd)


def refuse_run(name: str) -> KernwrightError:
    """Return the error for `campaign run` with a person as the agent."""
    return KernwrightError(
        "the agent of this campaign is human, and a person's edits cannot be repeated unattended",
        f"edit solution/, then: kernwright campaign step {name} --hypothesis TEXT --direction TAG",
    )
