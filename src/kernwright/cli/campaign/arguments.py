"""Arguments and surroundings that the commands of a campaign share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.campaign.agents.agent import Agent
    from kernwright.campaign.campaign import Campaign
    from kernwright.campaign.history import History, Iteration
    from kernwright.campaign.loop.work import CampaignWork


def complete_campaigns(incomplete: str) -> list[str]:
    """Return the names of the campaigns of the repository around the working directory."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        found = [path.parent.name for path in folder.glob(".kernwright/campaigns/*/settings.json")]
        if found:
            return sorted(name for name in found if name.startswith(incomplete))
    return []


CampaignName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="name of the campaign; default: the only one of the repository",
        autocompletion=complete_campaigns,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]
AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="agent to use; default: the campaign's")
]


@contextmanager
def work_on(campaign: Campaign) -> Iterator[CampaignWork]:
    """Work on a campaign while no other process does, with progress on standard error. Keep its page up to date.

    SIGTERM ends the work like Ctrl-C.
    """
    from kernwright.campaign.loop.work import CampaignWork
    from kernwright.campaign.state.book import working_on
    from kernwright.cli.console import ProgressBar, err

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with working_on(campaign, write_page) as book, ProgressBar() as bar:
            write_page(campaign, book.history)  # a process that was killed may have left an older one
            yield CampaignWork(book, bar, lambda line: err.print(line, soft_wrap=True))
    except KeyboardInterrupt:
        say("kernwright: everything that was finished is recorded; the same command continues", err=True)
        raise


def write_page(campaign: Campaign, history: History) -> None:
    """Write the campaign's page. If it cannot be written, the work continues."""
    from kernwright.core.errors import KernwrightError
    from kernwright.report.campaign.page import write_campaign_page

    try:
        write_campaign_page(campaign, history, campaign.page, reloads=True)
    except KernwrightError as error:
        say(f"kernwright: {error}", err=True)


def agent_of(campaign: Campaign, name: str | None) -> Agent:
    """Return the agent of that name, or the campaign's own."""
    from kernwright.campaign.agents.lookup import find_agent

    own = campaign.settings
    return find_agent(name or own.agent, own.repository, own.agent_command, own.agent_walls)


def say_outcome(iteration: Iteration) -> None:
    """Print the outcome of an iteration."""
    from kernwright.campaign.files.iterations_file import iteration_lines

    say(f"iteration {iteration.number}")
    for line in iteration_lines(iteration):
        say(f"  {line}")
