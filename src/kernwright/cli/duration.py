"""Durations: the options that limit how long a command waits or works."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from kernwright.campaign.time_limit import checked_minutes
from kernwright.core.errors import KernwrightError


def checked_seconds(seconds: float) -> float:
    """Return the seconds of --wait. Refuse a negative or infinite value: the wait would never end."""
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise KernwrightError(
            f"--wait must be at least 0 and finite, got {seconds:g}", "give a number of seconds, or omit it"
        )
    return seconds


Wait = Annotated[
    float, typer.Option(help="maximum seconds to wait until another judge on the device ends", callback=checked_seconds)
]
Minutes = Annotated[
    float,
    typer.Option(
        help="time limit in minutes; nothing is started that would end later; 0: no limit", callback=checked_minutes
    ),
]
