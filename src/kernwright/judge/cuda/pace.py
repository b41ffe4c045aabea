"""Pace: whether the device's memory is as fast as it can be, right before something is timed on it.

Memory that a process gives back is wiped by the driver in the background, and that takes bandwidth from whoever runs
meanwhile. On an H200 copies came to 3.8 instead of 4.2 TB/s for 2.5 ms after each GiB that was freed. It happens in
whoever's time comes next: between two judgements of a row it was the difference, and a candidate could free its memory
to slow its rivals. So before every block a copy is timed, again and again until it is fast. Where it stays slow,
somebody's copies may be on the device, or its heat slows it: whose doing it is, others must find out.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

PROBE_BYTES = 2**28  # that a copy reads, and writes: so many that no cache holds them
PROBE_SHARE = 64  # of a device's memory one such side takes no more than this part
SLOWED = 1.05  # times the fastest copy so far: while memory is wiped it is 1.1, on a quiet device under 1.03
MOST_WAIT_S = 2.0  # the driver wipes some 100 GB in less
STEADY = 8  # copies, none of them faster than the fastest before: before these, nobody knows what fast is


class Pace:
    """Of one device, for as long as it is judged on. `probe` gives a copy's seconds."""

    def __init__(self, probe: Callable[[], float], now: Callable[[], float] = time.monotonic) -> None:
        self._probe, self._now = probe, now
        self._fastest: float | None = None
        self._last = 0.0
        self.waited_s = 0.0  # in all

    def is_full(self) -> bool:
        """When it is; or not, when it should have been by now."""
        started = self._now()
        if self._fastest is None:
            self._fastest = self._steady()
        while self._is_slow():
            if self._now() - started > MOST_WAIT_S:
                break
        self.waited_s += self._now() - started
        return self._last <= SLOWED * self._fastest

    def accept(self) -> None:
        """As it was last is how fast it is: by its heat, or by others."""
        self._fastest = self._last

    def _is_slow(self) -> bool:
        assert self._fastest is not None
        self._last = self._probe()
        self._fastest = min(self._fastest, self._last)
        return self._last > SLOWED * self._fastest

    def _steady(self) -> float:
        """The fastest copy, when for a while none was faster by more than chance is."""
        deadline = self._now() + MOST_WAIT_S
        fastest, unbeaten = self._probe(), 0
        while unbeaten < STEADY and self._now() < deadline:
            took = self._probe()
            unbeaten = 0 if took * SLOWED < fastest else unbeaten + 1
            fastest = min(fastest, took)
        return fastest


def pace_of(device: int) -> Pace:
    size = min(PROBE_BYTES, torch.cuda.get_device_properties(device).total_memory // PROBE_SHARE)
    source, target = torch.zeros(2, size, dtype=torch.uint8, device=f"cuda:{device}")
    start, end = (torch.Event(enable_timing=True, device=f"cuda:{device}") for _ in range(2))

    def probe() -> float:
        target.copy_(source)  # keeps the device busy until the host has asked for all that follows
        start.record()
        target.copy_(source)
        target.copy_(source)
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end)) / 1e3

    return Pace(probe)
