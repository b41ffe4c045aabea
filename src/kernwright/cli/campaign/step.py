"""kernwright campaign step: one iteration, by hand or with an agent."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.campaign.arguments import AgentOption, CampaignName, agent_of, say_outcome, work_on

if TYPE_CHECKING:
    from kernwright.campaign.agents.agent import Agent
    from kernwright.campaign.campaign import Campaign
    from kernwright.campaign.history import Iteration
    from kernwright.campaign.loop.work import CampaignWork
    from kernwright.campaign.record import Idea


def step(
    name: CampaignName = None,
    hypothesis: Annotated[
        str | None, typer.Option(metavar="TEXT", help="why the edit in solution/ should help; judges your edit")
    ] = None,
    direction: Annotated[str | None, typer.Option(metavar="TAG", help="kind of the idea, such as vector-width")] = None,
    predict: Annotated[
        float | None, typer.Option(metavar="RATIO", help="expected speedup over the best version; 1.05 is 5 % faster")
    ] = None,
    agent: AgentOption = None,
) -> None:
    """Do one iteration: an idea, an edit, a verdict, and a record of all three.

    With --hypothesis, your edit in solution/ is judged. Without it, the campaign's agent edits. An iteration that was
    interrupted is finished first. An edit that does not improve is undone; its commit stays.

    Exit status: 0 if the edit improved, 1 if not.
    """
    from kernwright.campaign.agents.agent import HUMAN, Assignment
    from kernwright.campaign.lookup import find_campaign
    from kernwright.campaign.loop.run import prepare
    from kernwright.campaign.loop.step import check_allowed, step_by_hand, step_with

    campaign = find_campaign(name)
    by_hand = hypothesis is not None or (agent or campaign.settings.agent) == HUMAN
    idea = _idea(hypothesis, direction, predict) if by_hand else None
    editor: Agent | None = None if by_hand else agent_of(campaign, agent)
    with work_on(campaign) as work:
        for finished in prepare(work, editor):
            say_outcome(finished)
        if editor is None:
            check_allowed(work, idea.direction if idea else None)
            done = step_by_hand(work, idea) if idea else _step_as_stated(work)
        else:
            done = step_with(work, editor, Assignment(campaign, work.last_number + 1))
    say_outcome(done)
    raise typer.Exit(0 if done.ended and done.ended.improved else 1)


def _idea(hypothesis: str | None, direction: str | None, predict: float | None) -> Idea | None:
    """Return the idea of the options; None if there are none."""
    from kernwright.campaign.record import Idea
    from kernwright.core.errors import KernwrightError

    if hypothesis is None and direction is None and predict is None:
        return None
    for option, text in (("--hypothesis", hypothesis), ("--direction", direction)):
        if text is None or not text.strip():
            raise KernwrightError(f"{option} is missing", "an iteration by hand needs --hypothesis and --direction")
    if predict is not None and not 0 < predict < inf:
        raise KernwrightError(f"--predict must be above 0 and finite, got {predict:g}", "give a speedup, such as 1.05")
    return Idea(hypothesis=str(hypothesis), direction=str(direction), predicted_ratio=predict)


def _step_as_stated(work: CampaignWork) -> Iteration:
    """Do one iteration with the idea in idea.json. The file stays if the idea is refused."""
    from kernwright.campaign.agents.idea_file import IDEA_FILE
    from kernwright.campaign.loop.step import step_by_hand
    from kernwright.core.errors import KernwrightError

    idea = _stated(work.campaign)
    try:
        return step_by_hand(work, idea)
    except KernwrightError:
        if work.book.history.open_iteration is None:
            (work.campaign.agent_folder / IDEA_FILE).write_text(idea.model_dump_json() + "\n", encoding="utf-8")
        raise


def _stated(campaign: Campaign) -> Idea:
    """Return the idea that a person wrote to idea.json."""
    from kernwright.campaign.agents.idea_file import take_idea
    from kernwright.core.errors import KernwrightError

    stated = take_idea(campaign.agent_folder)
    if stated.problem:
        raise KernwrightError(
            f"the idea is missing: {stated.problem}", "give it with --hypothesis TEXT --direction TAG [--predict RATIO]"
        )
    return stated.idea
