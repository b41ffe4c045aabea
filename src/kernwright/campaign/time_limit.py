"""TimeLimit: the check of the minutes that a sweep or a tuning may take."""

from __future__ import annotations

from kernwright.core.errors import KernwrightError


def checked_minutes(minutes: float) -> float:
    """Return the minutes that a user gave; 0 means no limit.

    Raises:
        KernwrightError: the value is negative or not a number.
    """
    if not minutes >= 0:
        raise KernwrightError(f"--minutes must be at least 0, got {minutes:g}", "omit it for no limit")
    return minutes
