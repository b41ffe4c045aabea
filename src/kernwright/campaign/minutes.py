"""Minutes: how long a sweep or a tuning may take, as its user says it. 0: no limit."""

from __future__ import annotations

from kernwright.core.errors import KernwrightError


def minutes_given(minutes: float) -> float:
    if not minutes >= 0:  # nor is it a number that is none
        raise KernwrightError(
            f"there are no {minutes:g} minutes", "give --minutes above 0, or leave it out where there is no limit"
        )
    return minutes
