"""kernwright campaign run: repeat iterations unattended."""

from __future__ import annotations

from math import inf
from typing import Annotated

import typer

from kernwright.cli.campaign.arguments import AgentOption, CampaignName, agent_of, work_on
from kernwright.cli.output import say


def run(
    name: CampaignName = None,
    iterations: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="maximum number of iterations of the whole campaign")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", help="maximum minutes of agents and judgements in the whole campaign"),
    ] = None,
    cost: Annotated[float | None, typer.Option(metavar="USD", help="maximum cost of all agents in US dollars")] = None,
    agent: AgentOption = None,
    agent_minutes: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="time limit of one call of the agent")
    ] = None,
) -> None:
    """Repeat iterations until a stop rule, a budget or the target ends the campaign.

    All limits count from the start of the campaign. After Ctrl-C or a kill, the same command continues. Once the
    campaign has ended, it does nothing.
    """
    from kernwright.campaign.lookup import find_campaign
    from kernwright.campaign.loop.run import run_campaign
    from kernwright.campaign.loop.status import CampaignStatus
    from kernwright.campaign.settings import Budget
    from kernwright.core.errors import KernwrightError

    for option, limit in (("--budget", budget), ("--cost", cost), ("--agent-minutes", agent_minutes)):
        if limit is not None and not 0 < limit < inf:
            raise KernwrightError(f"{option} must be above 0 and finite, got {limit:g}", "omit it for no limit")
    campaign = find_campaign(name)
    own = campaign.settings.budget
    editor = agent_of(campaign, agent)
    if all(limit is None for limit in (iterations, budget, own.iterations, own.minutes)):
        raise KernwrightError(
            "neither the campaign nor the command limits iterations or time, and an agent need not report its cost",
            "give --iterations N or --budget MINUTES",
        )
    limits = Budget(iterations=iterations, minutes=budget, cost_usd=cost)
    seconds = 60 * agent_minutes if agent_minutes is not None else None
    with work_on(campaign) as work:
        reason = run_campaign(work, editor, limits, seconds)
        status = CampaignStatus.of(campaign, work.book.history, is_running=False)
    say(f"ended: {reason}")
    for line in status.lines():
        say(line)
