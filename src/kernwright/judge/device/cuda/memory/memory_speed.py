"""MemorySpeed: whether the device's memory is as fast as it can be, right before something is timed on it.

Memory that a process gives back is wiped by the driver in the background, and that takes bandwidth from whoever runs
meanwhile. On an H200 copies came to 3.8 instead of 4.2 TB/s for 2.5 ms after each GiB that was freed. It happens in
whoever's time comes next: between two judgements of a row it was the difference, and a candidate could free its memory
to slow its rivals. So before every block a copy is timed, again and again until it is fast. Where it stays slow,
somebody's copies may be on the device, or its heat slows it: whose doing it is, others must find out.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections import deque
from collections.abc import Callable

import torch

PROBE_BYTES = 2**28  # that a copy reads, and writes: so many that no cache holds them
PROBE_SHARE = 64  # of a device's memory one such side takes no more than this part
SLOWED = 1.05  # times a fast copy: while memory is wiped it is 1.1, on a quiet device under 1.03
LEARNT_S = 0.4  # that fast copies are looked for: to wipe all of an H200's memory takes the driver 0.35 s
FAST_SHARE = 0.05  # of them, the fastest, may be so by chance: the next one is what others are held to
MOST_WAIT_S = 2.0
PAUSE_S = 0.002  # after a slow copy: who waits for a device must not heat it
FAST_RUN = 8  # copies, as long as a block: what is slow every other millisecond is slow
GLITCHES = 3  # copies in a row that are faster than fast are none


class MemorySpeed:
    """Of one device, for as long as it is judged on. `probe` gives a copy's seconds."""

    def __init__(
        self,
        probe: Callable[[], float],
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._probe, self._now, self._pause = probe, now, pause
        self._fast: float | None = None
        self._last: deque[float] = deque(maxlen=GLITCHES)

    def learn(self) -> None:
        """Once, while nobody's code has run that could want it slow."""
        if self._fast is not None:
            return
        until, found = self._now() + LEARNT_S, [self._probe()]
        while self._now() < until:
            found.append(self._probe())
        self._fast = sorted(found)[int(FAST_SHARE * len(found))]

    def is_full(self, within_s: float = MOST_WAIT_S) -> bool:
        """When it is; or not, when it should have been by now."""
        self.learn()
        until = self._now() + within_s
        fast, needed = 0, 1
        while fast < needed:
            if not self._is_slow():
                fast += 1
                continue
            if self._now() > until:
                return False
            fast, needed = 0, FAST_RUN
            self._pause(PAUSE_S)
        return True

    def accept(self) -> None:
        """As it is now is how fast it is: by its heat, or by others."""
        self._fast = statistics.median(self._probe() for _ in range(FAST_RUN))

    def _is_slow(self) -> bool:
        assert self._fast is not None
        took = self._probe()
        self._last.append(took)
        if len(self._last) == GLITCHES:
            self._fast = min(self._fast, max(self._last))
        return took > SLOWED * self._fast


@functools.cache
def memory_speed_of(device: int) -> MemorySpeed:
    """One for all judgements of a process."""
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

    return MemorySpeed(probe)
