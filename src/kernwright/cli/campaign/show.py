"""kernwright campaign show, diff and plot: what was tried, and what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.campaign.arguments import AsJson, CampaignName, say_outcome
from kernwright.cli.output import refuse_unwritable, say, write_whole

if TYPE_CHECKING:
    from kernwright.campaign.campaign import Campaign
    from kernwright.campaign.history import Iteration

Number = Annotated[int, typer.Argument(metavar="N", min=1, help="number of an iteration")]
Version = Annotated[str, typer.Argument(help="number of an iteration, best, or start")]


def show(number: Number, name: CampaignName = None, as_json: AsJson = False) -> None:
    """Show one iteration in full: idea, edit, verdict, figures of each row, and the agent's transcript."""
    from kernwright.campaign.lookup import find_campaign
    from kernwright.campaign.state.versions import Versions

    campaign = find_campaign(name)
    iteration = _iteration(campaign, number)
    edited, ended = iteration.edited, iteration.ended
    if as_json:
        bodies = {"started": iteration.started, "edited": edited, "ended": ended}
        say(json.dumps({key: body and body.model_dump(mode="json") for key, body in bodies.items()}, indent=1))
        return
    say_outcome(iteration)
    for row in ended.rows if ended else ():
        times = [f"{time:.3f} us" if time is not None else "no time" for time in (row.baseline_us, row.candidate_us)]
        ratio = f", {row.ratio:.3f}x" if row.ratio is not None else ""
        say(f"  row {row.id}: baseline {times[0]}, candidate {times[1]}{ratio}")
    if edited and edited.commit:
        parent = iteration.started.parent_commit
        versions = Versions(campaign, campaign.git())
        say("")
        say(versions.diff(parent, edited.commit).rstrip() or "no difference to the version before")
    if edited and edited.transcript:
        say("")
        say("transcript:")
        transcript = campaign.ledger.blobs.read(edited.transcript.removeprefix("blob:"))
        say(transcript.decode(errors="replace").rstrip())


def diff(before: Version, after: Version, name: CampaignName = None) -> None:
    """Show the difference between two versions of the candidate, as git shows it."""
    from kernwright.campaign.lookup import find_campaign
    from kernwright.campaign.state.versions import Versions

    campaign = find_campaign(name)
    versions = Versions(campaign, campaign.git())
    commits = [_commit(campaign, versions, word) for word in (before, after)]
    say(versions.diff(*commits).rstrip() or f"versions {before} and {after} are the same")


def plot(
    name: CampaignName = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.svg", help="SVG file to write")] = None,
) -> None:
    """Plot the speedup of each iteration with its interval: in the terminal, or as an SVG image."""
    from kernwright.campaign.lookup import find_campaign
    from kernwright.report.campaign.plot import trajectory_plot, trajectory_text

    campaign = find_campaign(name)
    history = campaign.history()
    if out is None:
        for line in trajectory_text(history):
            say(line)
        return
    refuse_unwritable(out)
    write_whole(out, trajectory_plot(history, "trajectory", standalone=True), "choose another file")
    say(f"{out}: {len(history.iterations)} iteration(s)")


def _iteration(campaign: Campaign, number: int) -> Iteration:
    from kernwright.core.errors import KernwrightError

    iterations = {each.number: each for each in campaign.history().iterations}
    if number not in iterations:
        known = f"it has 1 to {max(iterations)}" if iterations else "it has none yet"
        raise KernwrightError(f"campaign {campaign.name} has no iteration {number}", known)
    return iterations[number]


def _commit(campaign: Campaign, versions: object, word: str) -> str:
    """Return the commit of a version."""
    from kernwright.campaign.state.standing import standing_of
    from kernwright.campaign.state.versions import Versions
    from kernwright.core.errors import KernwrightError

    assert isinstance(versions, Versions)
    if word in ("start", "best"):
        best = standing_of(campaign.history()).commit if word == "best" else None
        commit = best or versions.start
    elif word.isdecimal():
        edited = _iteration(campaign, int(word)).edited
        commit = edited.commit if edited else None
    else:
        raise KernwrightError(f"{word!r} is no version", "give the number of an iteration, best or start")
    if commit is None:
        raise KernwrightError(f"iteration {word} has no commit: nothing was changed", "choose another version")
    return commit
