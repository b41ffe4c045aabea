"""Deadlines that a request can change."""

from __future__ import annotations

DEVICE_DEADLINE_S = 30.0  # for the device to finish what a call has started
