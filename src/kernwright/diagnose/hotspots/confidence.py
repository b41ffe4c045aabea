"""Confidence: the certainty that a fast path removes the time of a hotspot."""

from __future__ import annotations

from typing import Literal

from kernwright.diagnose.hotspots.hotspot import Hotspot

Confidence = Literal["high", "medium", "low"]
NARROW = 0.25  # width of the range of a saving that counts as certain, as a part of the expected saving
BYTES = "bytes"


def confidence_of(hotspot: Hotspot) -> tuple[Confidence, str]:
    """Return the confidence in the saving of a hotspot, and the reason for it."""
    coverage, saving = hotspot.coverage, hotspot.saving
    if coverage.status == "new":
        return "low", "no kernel is known that does this work"
    if coverage.status == "in flight":
        return "low", "the fast path is unfinished work"
    if saving is None or saving.us <= 0:
        return "low", "the trace does not tell what would be saved"
    wide = saving.high_us - saving.low_us > NARROW * saving.us
    if BYTES in saving.basis and not wide and coverage.status == "covered, off":
        return "high", f"the fast path exists; {saving.basis}"
    return "medium", saving.basis
