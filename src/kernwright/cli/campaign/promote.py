"""kernwright campaign promote: write the best version of a campaign into kernwright.ops, on a branch."""

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
