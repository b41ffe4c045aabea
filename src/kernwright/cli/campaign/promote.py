"""kernwright campaign promote and check-model: the way of a campaign's best version into kernwright.ops."""

from __future__ import annotations

from typing import Annotated

import typer

from kernwright.cli.campaign.arguments import CampaignName
from kernwright.cli.output import say


def promote(
    name: CampaignName = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="judge nothing and write nothing; show the requirements")
    ] = False,
) -> None:
    """Promote the best version of a campaign.

    Missing judgements are made first: one on all rows of the grid, and a second full one with fresh seeds. Then every
    requirement is checked. A refusal lists all that is missing, with a command for each. The kernel is committed to the
    branch kernwright/promote-NAME, with its evidence; other branches stay as they are.

    Exit status 0: promoted, or with --dry-run ready; 1: a requirement is not met.
    """
    from kernwright.campaign.lookup import find_campaign
    from kernwright.campaign.promotion.promotion import NotReady, Promotion
    from kernwright.cli.console import ProgressBar

    own = Promotion(find_campaign(name))
    if not dry_run:
        with ProgressBar() as bar:
            own.judge_missing(bar)
    case = own.case()
    for requirement in case.requirements:
        say(f"{'met    ' if requirement.is_met else 'NOT MET'}  {requirement.name}: {requirement.why}")
        if not requirement.is_met:
            say(f"           {requirement.command}")
    if dry_run:
        raise typer.Exit(1 if case.missing else 0)
    try:
        promoted = own.promote()
    except NotReady:
        raise typer.Exit(1) from None
    say(f"promoted on branch {promoted.branch}, commit {promoted.branch_commit[:12]}; {len(promoted.files)} files")
    say(f"  tree    {own.worktree}")
    op = case.campaign.settings.op
    say(f"  try     cd {own.worktree} && PYTHONPATH=src python -m kernwright explain {op} --shape ...")
    say(f"  merge   git merge {promoted.branch}")


def check_model(
    name: CampaignName = None,
    swap: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="BASE NEW", help="labels of `kernwright run`, without and with --swap of this candidate"),
    ] = None,
    denoise: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="BASE NEW", help="labels of `kernwright denoise`, without and with the candidate"),
    ] = None,
    arithmetic: Annotated[
        str | None,
        typer.Option(metavar="TRACE:RANK", help="trace of a model, and the rank of the op's hotspot in it"),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="with --arithmetic: smallest measurable change of a run; default: 2"),
    ] = None,
) -> None:
    """Record the evidence from a model: a faster denoising loop, or a share of the time that is too small to measure.

    Exit status 0: the check passes; 1: it does not.
    """
    from kernwright.campaign.lookup import find_campaign
    from kernwright.campaign.promotion.model_check import check_by_arithmetic, check_by_labels
    from kernwright.core.errors import KernwrightError

    given = [own for own in (swap, denoise, arithmetic) if own is not None]
    if len(given) != 1:
        raise KernwrightError(
            f"{len(given) or 'none'} of --swap, --denoise and --arithmetic were given", "give exactly one of them"
        )
    if noise is not None and (arithmetic is None or not 0 < noise <= 100):
        raise KernwrightError(
            f"--noise {noise:g} needs --arithmetic and a value above 0 and up to 100", "write it in percent"
        )
    campaign = find_campaign(name)
    if arithmetic is not None:
        check = check_by_arithmetic(campaign, arithmetic, None if noise is None else noise / 100)
    elif swap is not None:
        check = check_by_labels(campaign, *swap, "swap")
    else:
        assert denoise is not None
        check = check_by_labels(campaign, *denoise, "denoise")
    say(f"{'passes' if check.improved else 'does not pass'}: {check.summary}")
    if not check.improved:
        raise typer.Exit(1)
