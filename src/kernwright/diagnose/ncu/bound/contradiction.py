"""Contradictions: counters of one launch that cannot all be true. A diagnosis does not use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kernwright.diagnose.ncu.bound.activity import waves_of
from kernwright.diagnose.ncu.bound.profiled_gpu import ProfiledGpu
from kernwright.diagnose.ncu.report.metric_names import (
    ACHIEVED,
    ACTIVE_WARPS,
    COMPUTE_SHARE,
    DRAM_RATE,
    DRAM_SHARE,
    DURATION,
    ELAPSED,
    ELIGIBLE,
    GRID,
    ISSUE_ACTIVE,
    ISSUE_ELAPSED,
    L1_SHARE,
    L2_SHARE,
    MEMORY_SHARE,
    SM_BUSY,
    THEORETICAL,
    WAVES,
)
from kernwright.diagnose.ncu.report.profiled_kernel import ProfiledKernel

MOST_PERCENT = 105.0  # counters of one launch come from several passes, which differ by a few percent
TOLERANCE = 0.15
_PERCENTAGES = (
    DRAM_SHARE, L2_SHARE, L1_SHARE, ISSUE_ACTIVE, ISSUE_ELAPSED, COMPUTE_SHARE, MEMORY_SHARE, THEORETICAL, ACHIEVED,
)  # fmt: skip


@dataclass(frozen=True)
class Contradiction:
    """One contradiction in words, and the metrics that cannot be used because of it."""

    what: str
    metrics: tuple[str, ...]


def contradictions_of(kernel: ProfiledKernel, gpu: ProfiledGpu | None) -> list[Contradiction]:
    """Return the contradictions among the counters that a diagnosis uses."""
    checks: tuple[Callable[[], Iterator[Contradiction]], ...] = (
        lambda: _impossible_values(kernel),
        lambda: _memory(kernel, gpu),
        lambda: _pairs(kernel),
        lambda: _grid(kernel),
    )
    return [found for check in checks for found in check()]


def without(kernel: ProfiledKernel, contradictions: list[Contradiction]) -> ProfiledKernel:
    """Return the kernel without the counters that contradict each other."""
    bad = {metric for each in contradictions for metric in each.metrics}
    return replace(kernel, counters={name: held for name, held in kernel.counters.items() if name not in bad})


def _impossible_values(kernel: ProfiledKernel) -> Iterator[Contradiction]:
    for metric in _PERCENTAGES:
        counter = kernel.counters.get(metric)
        if counter and not 0 <= counter.value <= MOST_PERCENT:
            yield Contradiction(f"{counter} cannot be a share of a peak", (metric,))
    duration = kernel.counters.get(DURATION)
    if duration and duration.value <= 0:
        yield Contradiction(f"{duration}: the kernel took no time", (DURATION,))


def _memory(kernel: ProfiledKernel, gpu: ProfiledGpu | None) -> Iterator[Contradiction]:
    rate, share = kernel.counters.get(DRAM_RATE), kernel.counters.get(DRAM_SHARE)
    if rate is None or gpu is None:
        return
    if rate.value > gpu.memory_peak * (1 + TOLERANCE):
        yield Contradiction(f"{rate} is more than the memory of {gpu.title} can move", (DRAM_RATE, DRAM_SHARE))
    elif share and share.value >= 5 and abs(rate.value / gpu.memory_peak * 100 / share.value - 1) > TOLERANCE:
        expected = rate.value / gpu.memory_peak * 100
        yield Contradiction(
            f"{rate} is {expected:.0f} % of the peak of {gpu.title}, but {share}", (DRAM_RATE, DRAM_SHARE)
        )


def _pairs(kernel: ProfiledKernel) -> Iterator[Contradiction]:
    """Compare pairs of counters. The first of a pair can never be larger than the second."""
    for small, large, slack in ((ACHIEVED, THEORETICAL, 5.0), (ELIGIBLE, ACTIVE_WARPS, 0.1), (SM_BUSY, ELAPSED, None)):
        first, second = kernel.counters.get(small), kernel.counters.get(large)
        if first and second and first.value > second.value + (slack if slack is not None else second.value * TOLERANCE):
            yield Contradiction(f"{first} is more than {second}", (small, large))


def _grid(kernel: ProfiledKernel) -> Iterator[Contradiction]:
    said, computed = kernel.counters.get(WAVES), waves_of(kernel)
    if said and computed is not None and abs(said.value - computed) > max(0.02, TOLERANCE * computed):
        yield Contradiction(f"{said}, but its grid and limits give {computed:.2f}", (WAVES, GRID))
