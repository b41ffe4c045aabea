"""Duration: how long a command may wait or work, as options say it."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from kernwright.campaign.minutes import minutes_given
from kernwright.core.errors import KernwrightError


def seconds_given(seconds: float) -> float:
    """Refuses what no clock reaches: a wait for a time that is no number would never end."""
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise KernwrightError(f"nobody can wait {seconds:g} seconds", "give --wait 0 or more, or leave it out")
    return seconds


Wait = Annotated[float, typer.Option(help="seconds to wait for another judge on the device", callback=seconds_given)]
Minutes = Annotated[
    float, typer.Option(help="start nothing that would end later than this; 0: no limit", callback=minutes_given)
]
