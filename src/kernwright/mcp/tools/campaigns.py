"""The tools of campaigns: status, an edit of the solution, and one step."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context
from pydantic import BaseModel, Field

from kernwright.campaign.campaign import Campaign, campaigns_folder
from kernwright.campaign.history import Iteration
from kernwright.campaign.lookup import SETTINGS_FILE, find_campaign
from kernwright.campaign.loop.status import CampaignStatus
from kernwright.campaign.state.book import is_worked_on
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.mcp.answer import Limit, NextCall, Offset, PagedAnswer, call, page_of
from kernwright.mcp.child import child
from kernwright.mcp.folders import AllowedFolders
from kernwright.mcp.tools.candidates import replace_candidate
from kernwright.mcp.tools.judgement import ProgressReport

LONGEST_TEXT = 2000

CampaignGiven = Annotated[str | None, Field(description="name of the campaign; default: the only one")]
Repository = Annotated[
    str | None, Field(description="git repository of the campaign; default: the first folder of the server")
]


class IterationEntry(BaseModel):
    """One iteration of a campaign."""

    number: int
    hypothesis: str | None
    direction: str | None
    predicted: float | None
    verdict: str | None
    speedup: float | None
    improved: bool | None = Field(description="null while the iteration is open")
    kept: bool | None
    reason: str


class CampaignCard(PagedAnswer):
    """A campaign and its iterations, newest first."""

    name: str
    task: str
    op: str
    agent: str
    language: str
    solution: str = Field(description="folder of the candidate that the next iteration judges")
    card: str = Field(description="prompt.md, which describes the campaign to an agent")
    stage: str = Field(description="prepared, waiting, editing, judging, refused or ended")
    is_running: bool = Field(description="a process works on the campaign now")
    best_iteration: int | None
    best_speedup: float | None
    target_speedup: float | None = Field(description="the speedup at the bandwidth limit, if it is known")
    refused: list[str] = Field(description="why the next iteration is refused")
    avoid_directions: list[str]
    ended: str | None = Field(description="why the campaign ended; null while it runs")
    next_command: str
    iterations: list[IterationEntry]
    said: str = Field(default="", description="what the step printed")


class CampaignTools:
    """Answers about campaigns in git repositories below the folders of the server."""

    def __init__(self, folders: AllowedFolders) -> None:
        self._folders = folders

    def campaign_status(
        self, name: CampaignGiven = None, repository: Repository = None, offset: Offset = 0, limit: Limit = 10
    ) -> CampaignCard:
        """Show a campaign: goal, best version so far, what is refused, and its iterations, newest first."""
        return self._card(self._find(name, repository), offset, limit)

    def campaign_edit(
        self,
        files: Annotated[
            dict[str, str], Field(description="all files of the solution by name: candidate.toml and the sources")
        ],
        name: CampaignGiven = None,
        repository: Repository = None,
    ) -> CampaignCard:
        """Replace the solution of a campaign by an edited one. If a file is invalid, nothing is changed.

        Check it with judge and quick=true, then submit it with campaign_step.
        """
        campaign = self._find(name, repository)
        folder = self._folders.folder(str(campaign.agent_folder))
        if is_worked_on(campaign.folder):
            raise EnvironmentProblem(
                f"a process works on the campaign {campaign.name}", "wait until campaign_status says is_running=false"
            )
        replace_candidate(self._folders, folder, campaign.solution.name, files)
        return self._card(campaign, 0, 5)

    async def campaign_step(
        self,
        context: Context[Any, Any],
        name: CampaignGiven = None,
        repository: Repository = None,
        hypothesis: Annotated[str | None, Field(description="why the edit should help", max_length=2000)] = None,
        direction: Annotated[
            str | None, Field(description="tag of the direction, such as vector-width", max_length=100)
        ] = None,
        predict: Annotated[float | None, Field(gt=0, description="expected speedup over the best version")] = None,
    ) -> CampaignCard:
        """Do one iteration of a campaign: judge the edited solution, record the result, keep or undo the edit.

        With the agent `human`, edit the solution first and give the hypothesis and the direction.
        """
        campaign = self._find(name, repository)
        words = ["kernwright", "campaign", "step", campaign.name]
        options = {"--hypothesis": hypothesis, "--direction": direction, "--predict": predict}
        words += [f"{option}={value}" for option, value in options.items() if value is not None]
        progress, lines = ProgressReport(context), []
        async with child(words, campaign.settings.repository) as process:
            while (line := await progress.during("working", process.line)) is not None:
                lines.append(line.decode(errors="replace"))
                await progress.tell(lines[-1])
            if await process.status() not in (0, 1):
                raise await process.error("the step")
        done = await anyio.to_thread.run_sync(self._card, campaign, 0, 5)
        return done.model_copy(update={"said": "\n".join(lines)[-LONGEST_TEXT:]})

    def _find(self, name: str | None, repository: str | None) -> Campaign:
        folder = self._folders.folder(repository or str(self._folders.roots[0]))
        if not any(campaigns_folder(folder).glob(f"*/{SETTINGS_FILE}")):
            raise KernwrightError(f"there is no campaign in {folder}", "start one: kernwright campaign start TASK")
        campaign = find_campaign(name, folder)
        self._folders.folder(str(campaign.settings.repository))
        self._folders.ledger(str(campaign.settings.ledger))
        return campaign

    def _card(self, campaign: Campaign, offset: int, limit: int) -> CampaignCard:
        history, settings = campaign.history(), campaign.settings
        status = CampaignStatus.of(campaign, history, is_worked_on(campaign.folder))
        shown, paging = page_of(list(reversed(history.iterations)), offset, limit)
        return CampaignCard(
            name=campaign.name,
            task=settings.task,
            op=settings.op,
            agent=settings.agent,
            language=settings.language,
            solution=self._folders.shown(campaign.solution),
            card=self._folders.shown(campaign.agent_folder / "prompt.md"),
            stage=status.stage,
            is_running=status.is_running,
            best_iteration=status.standing.iteration,
            best_speedup=status.standing.ratio if status.standing.iteration is not None else None,
            target_speedup=status.target,
            refused=[each.why for each in status.refusals],
            avoid_directions=list(status.avoid),
            ended=status.end,
            next_command=status.next_command,
            iterations=[_iteration(each) for each in shown],
            next=_next_calls(campaign, status, history.iterations),
            **paging,
        )


def _next_calls(campaign: Campaign, status: CampaignStatus, iterations: list[Iteration]) -> list[NextCall]:
    last = next((each.ended for each in reversed(iterations) if each.ended), None)
    ledger = str(campaign.settings.ledger)
    run = last.verdict_run if last else None
    seen = [call("verdict_show", "see the last verdict", run=run, ledger=ledger)] if run else []
    if status.stage in ("refused", "ended"):
        return seen
    step = call("campaign_step", "judge the edited solution", name=campaign.name)
    return [call("campaign_edit", "edit the solution", name=campaign.name), step, *seen]


def _iteration(iteration: Iteration) -> IterationEntry:
    idea, ended, edited = iteration.idea, iteration.ended, iteration.edited
    return IterationEntry(
        number=iteration.number,
        hypothesis=idea.hypothesis[:LONGEST_TEXT] if idea else None,
        direction=idea.direction if idea else None,
        predicted=idea.predicted_ratio if idea else None,
        verdict=ended.verdict if ended else None,
        speedup=ended.ratio if ended else None,
        improved=ended.improved if ended else None,
        kept=ended.kept if ended else None,
        reason=(ended.reason if ended else edited.reason if edited else "")[:LONGEST_TEXT],
    )
