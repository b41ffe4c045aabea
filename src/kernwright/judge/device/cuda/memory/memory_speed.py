"""MemorySpeed: checks that the device's memory runs at full speed right before something is timed.

The driver clears freed memory in the background, which takes bandwidth from other work. On an H200 copies reached 3.8
instead of 4.2 TB/s for 2.5 ms after each GiB that was freed. The next side to run pays for it: two judgements of a row
differed by it, and a candidate could free memory to slow down its competitors. So before every block a copy is timed
repeatedly until it is fast. If it stays slow, other work may be on the device or it may be throttled; the caller has to
find the cause.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections import deque
from collections.abc import Callable

import torch

PROBE_BYTES = 2**28  # size of source and of target of the timed copy, larger than any cache
PROBE_FRACTION = 64  # source and target each take at most this fraction of the device's memory
SLOW_FACTOR = 1.05  # slow relative to the reference: 1.1 while memory is cleared, under 1.03 on an idle device
LEARN_S = 0.4  # duration of the search for the reference time; clearing all of an H200's memory takes 0.35 s
FAST_SHARE = 0.05  # share of the fastest copies that is ignored as chance when the reference time is chosen
MAX_WAIT_S = 2.0
PAUSE_S = 0.002  # pause after a slow copy, so that waiting does not heat the device
FAST_RUN = 8  # fast copies in a row after a slow one, as long as a block, since slowness can be intermittent
RECORD_RUN = 3  # this many record-fast copies in a row are real and lower the reference time


class MemorySpeed:
    """The memory speed of one device for the lifetime of the process. `probe` returns the seconds of a copy."""

    def __init__(
        self,
        probe: Callable[[], float],
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._probe, self._now, self._pause = probe, now, pause
        self._fast: float | None = None
        self._last: deque[float] = deque(maxlen=RECORD_RUN)

    def learn(self) -> None:
        """Measure the reference time once, before any contestant's code runs that could slow the device down."""
        if self._fast is not None:
            return
        until, times = self._now() + LEARN_S, [self._probe()]
        while self._now() < until:
            times.append(self._probe())
        self._fast = sorted(times)[int(FAST_SHARE * len(times))]

    def wait_until_fast(self, within_s: float = MAX_WAIT_S) -> bool:
        """Wait until the memory is at full speed. Return False if it is still slow after `within_s`."""
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
        """Take the current speed as the reference, whatever slows the device down."""
        self._fast = statistics.median(self._probe() for _ in range(FAST_RUN))

    def _is_slow(self) -> bool:
        assert self._fast is not None
        seconds = self._probe()
        self._last.append(seconds)
        if len(self._last) == RECORD_RUN:
            self._fast = min(self._fast, max(self._last))
        return seconds > SLOW_FACTOR * self._fast


@functools.cache
def memory_speed_of(device: int) -> MemorySpeed:
    """Return the memory speed of a device, one object for all judgements of the process."""
    size = min(PROBE_BYTES, torch.cuda.get_device_properties(device).total_memory // PROBE_FRACTION)
    source, target = torch.zeros(2, size, dtype=torch.uint8, device=f"cuda:{device}")
    start, end = (torch.Event(enable_timing=True, device=f"cuda:{device}") for _ in range(2))

    def probe() -> float:
        target.copy_(source)  # keeps the device busy until the host has queued the timed copies
        start.record()
        target.copy_(source)
        target.copy_(source)
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end)) / 1e3

    return MemorySpeed(probe)
