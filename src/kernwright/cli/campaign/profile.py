"""kernwright campaign profile and reread: what the stop rules ask for after ideas that did not help."""

from __future__ import annotations

from kernwright.cli.campaign.arguments import CampaignName, work_on
from kernwright.cli.output import say


def profile(name: CampaignName = None) -> None:
    """Profile the best version on its slowest row, and record what bounds it."""
    from kernwright.campaign.files.card import bottleneck_text
    from kernwright.campaign.lookup import find_campaign

    with work_on(find_campaign(name)) as work:
        taken = work.take_profile()
    say(f"row {taken.bottleneck.row}: {bottleneck_text(taken.bottleneck)}")


def reread(name: CampaignName = None) -> None:
    """Read all iterations again from the ledger, show them, and record that this was done."""
    from kernwright.campaign.files.iterations_file import iterations_text
    from kernwright.campaign.lookup import find_campaign

    with work_on(find_campaign(name)) as work:
        work.reread()
        text = iterations_text(work.book.history)
    say(text.rstrip())
