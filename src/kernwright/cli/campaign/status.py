"""kernwright campaign status and list: where campaigns stand."""

from __future__ import annotations

import json
from pathlib import Path

from kernwright.cli.campaign.arguments import AsJson, CampaignName
from kernwright.cli.output import say


def status(name: CampaignName = None, as_json: AsJson = False) -> None:
    """Show the state of a campaign, what is refused and why, and the next command."""
    from kernwright.campaign.lookup import find_campaign
    from kernwright.campaign.loop.status import CampaignStatus
    from kernwright.campaign.state.book import is_worked_on

    campaign = find_campaign(name)
    found = CampaignStatus.of(campaign, campaign.history(), is_worked_on(campaign.folder))
    if as_json:
        say(json.dumps(found.as_json(), indent=1))
        return
    for line in found.lines():
        say(line)


def list_(as_json: AsJson = False) -> None:
    """List the campaigns of the repository, one per line."""
    from kernwright.campaign.campaign import campaigns_folder
    from kernwright.campaign.lookup import SETTINGS_FILE, find_campaign
    from kernwright.campaign.loop.status import CampaignStatus
    from kernwright.campaign.repository import Repository
    from kernwright.campaign.state.book import is_worked_on

    root = Repository.around(Path.cwd()).main.root
    names = sorted(path.parent.name for path in campaigns_folder(root).glob(f"*/{SETTINGS_FILE}"))
    found = []
    for name in names:
        campaign = find_campaign(name, root)
        found.append(CampaignStatus.of(campaign, campaign.history(), is_worked_on(campaign.folder)))
    if as_json:
        say(json.dumps({"campaigns": [each.as_json() for each in found]}, indent=1))
        return
    for each in found:
        best = f"{each.standing.ratio:.3f}x" if each.standing.iteration is not None else "no better version"
        say(f"{each.campaign.name}: {each.stage}, {each.usage.iterations} iteration(s), {best}")
    if not found:
        say(f"no campaign in {root}; `kernwright campaign start TASK` makes one")
