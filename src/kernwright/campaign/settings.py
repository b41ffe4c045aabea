"""CampaignSettings: the options of `campaign start`. They never change afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from kernwright.tasks.policy import Metric

CampaignLanguage = Literal["cuda", "triton", "cutedsl", "cpp", "python"]


class Budget(BaseModel):
    """The most that a campaign may use; None means no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: int | None = Field(default=None, ge=1)
    minutes: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="time of agents and judgements together"
    )
    cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="cost that agents report")


class CampaignSettings(BaseModel):
    """The goal of a campaign, and everything that its verdicts depend on, by digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="names the branch, the folder and the records")
    task: str = Field(description="name or absolute folder of the task")
    task_digest: str
    op: str = Field(description="the op that is optimised; only its rows are judged")
    rows: str | None = Field(default=None, description="globs over row ids; None for the task's usual rows")
    device: str = "cpu"
    baseline: str = "eager"
    baseline_digest: str
    metric: Metric
    language: CampaignLanguage
    agent: str = Field(description="name of an agent: tuner, command, human, or a preset")
    agent_command: str | None = Field(default=None, description="command line of the agent `command`")
    agent_walls: bool = Field(
        default=True, description="a program can write only to its own folders; without, changes are only detected"
    )
    budget: Budget = Budget()
    target_ratio: float | None = Field(
        default=None, description="speedup at the bandwidth limit; reaching it ends the campaign; None if unknown"
    )
    repository: Path
    base_commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    ledger: Path = Field(description="absolute folder of the ledger with all verdicts and records of the campaign")
