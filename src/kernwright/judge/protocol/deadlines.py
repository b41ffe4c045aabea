"""Deadlines that a request can change."""

from __future__ import annotations

DEVICE_DEADLINE_S = 30.0  # limit for the device to finish the work that a call has started
