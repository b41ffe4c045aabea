"""kernwright campaign review: let a program or a person review the best version of a campaign."""

from __future__ import annotations

from typing import Annotated

import typer

from kernwright.cli.campaign.arguments import CampaignName
from kernwright.cli.output import say


def review(
    name: CampaignName = None,
    reviewer: Annotated[
        str | None, typer.Option(metavar="AGENT", help="preset that reviews, such as claude or codex, or command")
    ] = None,
    reviewer_command: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="command line of --reviewer command")
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="approve the version as the user of git")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="reject the version; needs --why")] = False,
    close: Annotated[str | None, typer.Option(metavar="ID", help="close a finding; needs --why")] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="reason, which is recorded")] = "",
    time_limit: Annotated[float, typer.Option(metavar="MINUTES", help="time limit of the reviewer")] = 60.0,
) -> None:
    """Review the best version of a campaign.

    Without an option, write the folder for a reviewer and show the state of the reviews. A new best version needs a new
    review. Exit status 0: approved, or nothing was decided; 1: not approved.
    """
    from kernwright.campaign.lookup import find_campaign
    from kernwright.campaign.review.review import Review
    from kernwright.core.errors import KernwrightError

    given_options = {
        "--reviewer": reviewer is not None, "--approve": approve, "--reject": reject, "--close": close is not None,
    }  # fmt: skip
    chosen = [word for word, is_given in given_options.items() if is_given]
    if len(chosen) > 1:
        raise KernwrightError(f"{' and '.join(chosen)} exclude each other", "give one of them")
    if reviewer_command is not None and reviewer is None:
        reviewer = "command"
    if time_limit <= 0:
        raise KernwrightError(f"--time-limit must be above 0, got {time_limit:g}", "give the minutes of the reviewer")
    own = Review(find_campaign(name))
    if reviewer is not None:
        from kernwright.cli.console import err

        given = own.by_program(
            reviewer, reviewer_command, 60.0 * time_limit, lambda line: err.print(line, soft_wrap=True)
        )
    elif approve or reject:
        given = own.by_person("approved" if approve else "rejected", why)
    elif close is not None:
        given = own.close(close, why)
    else:
        say(f"folder of the review: {own.prepare()}")
        _show_state(own.campaign.name)
        return
    say(f"recorded: {given.decision} by {given.reviewer}{f': {given.why}' if given.why else ''}")
    for finding in given.findings:
        place = f" {finding.file}:{finding.line}" if finding.line else f" {finding.file}" if finding.file else ""
        say(f"  {finding.id} ({finding.check}){place}: {finding.text}")
    if given.decision == "rejected" or given.findings:
        raise typer.Exit(1)


def _show_state(name: str) -> None:
    from kernwright.campaign.best_version import BestVersion
    from kernwright.campaign.lookup import find_campaign
    from kernwright.campaign.review.findings import ReviewState

    campaign = find_campaign(name)
    history = campaign.history()
    state = ReviewState.of(history, BestVersion.of(campaign, history).digest)
    say(f"state: {state.obstacle or 'approved'}")
    for finding in state.open_findings:
        say(f"  open {finding.id} ({finding.check}): {finding.text}")
    if state.obstacle:
        say(f"  next    kernwright campaign review {name} --reviewer AGENT, or --approve, or --reject --why TEXT")
