"""The tools of campaigns: status, and one step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context
from pydantic import BaseModel, Field, ValidationError

from kernwright.campaign.campaign import Campaign, campaigns_folder
from kernwright.campaign.history import History, Iteration
from kernwright.campaign.settings import CampaignSettings
from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.mcp.answer import Limit, NextCall, Offset, PagedAnswer, call, page_of
from kernwright.mcp.child import child
from kernwright.mcp.folders import AllowedFolders
from kernwright.mcp.tools.judgement import HEARTBEAT_S, ProgressReport

SETTINGS_FILE = "settings.json"
LONGEST_TEXT = 2000

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
    solution: str = Field(description="folder of the candidate that the next iteration edits")
    card: str = Field(description="prompt.md, which describes the campaign to an agent")
    open_iteration: int | None
    best_iteration: int | None
    best_speedup: float | None
    ended: str | None = Field(description="why the campaign ended; null while it runs")
    iterations: list[IterationEntry]
    said: str = Field(default="", description="what the step printed")


class CampaignTools:
    """Answers about campaigns in git repositories below the folders of the server."""

    def __init__(self, folders: AllowedFolders) -> None:
        self._folders = folders

    def campaign_status(
        self,
        name: Annotated[str | None, Field(description="name of the campaign; default: the only one")] = None,
        repository: Repository = None,
        offset: Offset = 0,
        limit: Limit = 10,
    ) -> CampaignCard:
        """Show a campaign: goal, best version so far, and its iterations, newest first."""
        return self._status(self._find(name, repository), offset, limit)

    async def campaign_step(
        self,
        context: Context[Any, Any],
        name: Annotated[str | None, Field(description="name of the campaign; default: the only one")] = None,
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
            ended = False
            while not ended:
                with anyio.move_on_after(HEARTBEAT_S) as pause:
                    line = await process.line()
                    ended = line is None
                    lines += [line.decode(errors="replace")] if line else []
                await (progress.still("working") if pause.cancelled_caught else progress.tell((lines or [""])[-1]))
            status = await process.status()
            errors = process.last_words()
        if status not in (0, 1):
            cause, _, remedy = errors.removeprefix("kernwright: ").partition("\n  remedy: ")
            raise KernwrightError(cause or f"the step ended with status {status}", remedy)
        done = await anyio.to_thread.run_sync(self._status, campaign, 0, 5)
        return done.model_copy(update={"said": "\n".join(lines)[-LONGEST_TEXT:]})

    def _find(self, name: str | None, repository: str | None) -> Campaign:
        folder = campaigns_folder(self._folders.folder(repository or str(self._folders.roots[0])))
        known = sorted(path.parent.name for path in folder.glob(f"*/{SETTINGS_FILE}")) if folder.is_dir() else []
        if name is None and len(known) == 1:
            name = known[0]
        if name not in known:
            wanted = f"no campaign named {name!r}" if name else f"{len(known)} campaigns, and no name was given"
            remedy = f"use one of: {', '.join(known)}" if known else "start one with `kernwright campaign start TASK`"
            raise KernwrightError(f"{wanted} in {folder}", did_you_mean(name or "", known, remedy))
        return self._load(folder / str(name) / SETTINGS_FILE)

    def _load(self, path: Path) -> Campaign:
        try:
            settings = CampaignSettings.model_validate_json(self._folders.file(str(path), 1 << 20).read_bytes())
        except ValidationError as error:
            raise KernwrightError(f"{path} cannot be read: {error.error_count()} problems", "restore it") from None
        self._folders.folder(str(settings.repository))
        self._folders.ledger(str(settings.ledger))
        return Campaign(settings)

    def _status(self, campaign: Campaign, offset: int, limit: int) -> CampaignCard:
        history, settings = campaign.history(), campaign.settings
        shown, paging = page_of(list(reversed(history.iterations)), offset, limit)
        best, open_one = history.best, history.open_iteration
        return CampaignCard(
            name=campaign.name,
            task=settings.task,
            op=settings.op,
            agent=settings.agent,
            language=settings.language,
            solution=self._folders.shown(campaign.solution),
            card=self._folders.shown(campaign.agent_folder / "prompt.md"),
            open_iteration=open_one.number if open_one else None,
            best_iteration=best.number if best else None,
            best_speedup=best.ended.ratio if best and best.ended else None,
            ended=history.end.reason if history.end else None,
            iterations=[_iteration(each) for each in shown],
            next=_next_calls(campaign, history),
            **paging,
        )


def _next_calls(campaign: Campaign, history: History) -> list[NextCall]:
    last = next((each.ended for each in reversed(history.iterations) if each.ended), None)
    seen = [call("verdict_show", "see the last verdict", run=last.verdict_run)] if last and last.verdict_run else []
    if history.end:
        return seen
    return [call("campaign_step", "do the next iteration", name=campaign.name), *seen]


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
