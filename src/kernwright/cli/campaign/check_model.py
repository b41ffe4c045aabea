"""kernwright campaign check-model: record whether a model became faster with the best version of a campaign."""

from __future__ import annotations

from typing import Annotated

import typer

from kernwright.cli.campaign.arguments import CampaignName
from kernwright.cli.output import say


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
