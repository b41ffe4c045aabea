"""kernwright campaign start: make a campaign in the repository around the working directory."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import TaskName, complete_baselines, complete_rows
from kernwright.cli.campaign.arguments import agent_of, work_on
from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.campaign.campaign import Campaign


def start(
    task: TaskName,
    op: Annotated[str | None, typer.Option(help="op to optimise; needed if the task has several")] = None,
    name: Annotated[str | None, typer.Option(help="name of the campaign; default: from the op")] = None,
    base: Annotated[
        str | None, typer.Option(metavar="REF", help="commit to start from; default: the current one")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="human, tuner, command, or a preset such as claude; default: tuner if the candidate of --from has a "
            "space.toml, else human",
        ),
    ] = None,
    agent_command: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="command line of --agent command")
    ] = None,
    walls: Annotated[
        bool, typer.Option("--walls/--no-walls", help="let a program write only to its own folders")
    ] = True,
    language: Annotated[
        str | None, typer.Option(help="language of the candidate: cuda, triton, cutedsl, cpp or python (default)")
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="candidate to start from; it is judged as iteration 1")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="globs over row ids, or production, smoke, all", autocompletion=complete_rows),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
    baseline: Annotated[str, typer.Option(help="baseline to beat", autocompletion=complete_baselines)] = "eager",
    metric: Annotated[str | None, typer.Option(help="deciding metric; default: the task's")] = None,
    iterations: Annotated[int | None, typer.Option(metavar="N", min=1, help="maximum number of iterations")] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="maximum minutes of agents and judgements together")
    ] = None,
    cost: Annotated[float | None, typer.Option(metavar="USD", help="maximum cost of agents in US dollars")] = None,
    target: Annotated[
        float | None,
        typer.Option(metavar="RATIO", help="speedup at which the campaign ends; default: the bandwidth limit"),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="ledger folder; default: .kernwright/ledger of the repository")
    ] = None,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="make the worktree and the task card, but measure nothing")
    ] = False,
) -> None:
    """Start a campaign: check the repository, make a worktree with the task card, and measure the baseline.

    The repository must have no uncommitted changes, and its branch must not be behind the upstream.
    """
    from typing import cast, get_args

    from pydantic import ValidationError

    from kernwright.campaign.agents.agent import HUMAN
    from kernwright.campaign.campaign import Campaign
    from kernwright.campaign.loop.run import prepare
    from kernwright.campaign.settings import Budget, CampaignLanguage, CampaignSettings
    from kernwright.campaign.start.plan import CampaignPlan
    from kernwright.campaign.start.start import start_campaign
    from kernwright.core.errors import KernwrightError

    agent = agent or _usual_agent(from_)
    languages = get_args(CampaignLanguage)
    if language is not None and language not in languages:
        raise KernwrightError(f"--language {language!r} is not known", f"use one of: {', '.join(languages)}")
    if target is not None and not 0 < target < inf:
        raise KernwrightError(f"--target must be above 0 and finite, got {target:g}", "give a speedup, such as 2.5")
    try:
        limits = Budget(iterations=iterations, minutes=budget, cost_usd=cost)
    except ValidationError as error:
        first = error.errors()[0]
        raise KernwrightError(
            f"the limit of {first['loc'][0]} is {first['input']}: {first['msg']}", "omit it for no limit"
        ) from None
    plan = CampaignPlan(
        task=task, op=op, name=name, rows=rows, device=device, baseline=baseline, metric=metric,
        language=cast("CampaignLanguage | None", language), agent=agent, agent_command=agent_command,
        agent_walls=walls, budget=limits, target_ratio=target, ledger=ledger, candidate=from_,
    )  # fmt: skip

    def check(settings: CampaignSettings) -> None:
        if agent != HUMAN:
            agent_of(Campaign(settings), None)

    campaign = start_campaign(Path.cwd(), plan, base, check)
    say(f"campaign {campaign.name} on branch {campaign.branch}")
    say(f"  card     {campaign.agent_folder / 'prompt.md'}")
    if not prepare_only:
        with work_on(campaign) as work:
            prepare(work, None)
        _say_baseline(campaign)
    say(f"  edit     {campaign.solution}")
    again = "step {} --hypothesis TEXT --direction TAG" if agent == HUMAN else "run {} --iterations N"
    say(f"  next     kernwright campaign {again.format(campaign.name)}")


def _usual_agent(candidate: Path | None) -> str:
    from kernwright.campaign.agents.agent import HUMAN
    from kernwright.campaign.agents.lookup import TUNER
    from kernwright.campaign.tuning.space import SPACE_FILE

    return TUNER if candidate is not None and (candidate / SPACE_FILE).is_file() else HUMAN


def _say_baseline(campaign: Campaign) -> None:
    from kernwright.campaign.files.card import bottleneck_text
    from kernwright.campaign.state.standing import target_of

    history = campaign.history()
    limit = target_of(history)
    if history.baseline is not None:
        times = [row.baseline_us for row in history.baseline.rows if row.baseline_us is not None]
        say(f"  baseline {campaign.settings.baseline}: {len(times)} row(s), {min(times):.3f} to {max(times):.3f} us")
        say(f"  limit    {f'{limit:.3f}x over the baseline' if limit else 'not known'}")
        say(f"  bound    {bottleneck_text(history.baseline.bottleneck)}")
