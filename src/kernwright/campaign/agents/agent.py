"""Agent: edits the candidate of a campaign, one idea at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.record import AgentEnding, Idea
from kernwright.judge.rounds.progress import Progress

HUMAN = "human"  # a person, who edits before `campaign step`; not an Agent
# Start of the reason of an agent that changed nothing because all its ideas were tried. It ends `campaign run`.
NOTHING_LEFT = "nothing is left to try"


@dataclass(frozen=True)
class Assignment:
    """The work that one iteration asks of an agent: edit `campaign.solution` and give the idea behind the edit."""

    campaign: Campaign
    number: int
    time_limit_s: float | None = None
    cost_limit_usd: float | None = None
    avoid_directions: tuple[str, ...] = ()  # directions that the stop rules refuse now


@dataclass(frozen=True)
class AgentResult:
    """The result of an assignment."""

    ending: AgentEnding
    idea: Idea | None = None
    reason: str = ""  # why the agent did not finish, or which protected file it changed
    note: str = ""  # the agent's own words about its edit
    seconds: float = 0.0
    cost_usd: float | None = None
    transcript: bytes = b""


class Agent(Protocol):
    """A program, or the tuner.

    `edit` reports the mistakes of an agent in its result. It raises an error only if this machine lacks something. On
    KeyboardInterrupt, it ends the agent's processes and raises the exception again.
    """

    @property
    def name(self) -> str: ...

    def edit(self, assignment: Assignment, progress: Progress) -> AgentResult: ...
