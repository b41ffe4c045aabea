"""Activity: the share of a kernel's time in which its SMs had work, and the cause of the rest: launch, grid or tail.

The share of time in which an average SM has work is the product of two factors. `started` is that share for the busiest
SM; the rest is the start and the end of the kernel. `balance` is the average SM's time over the busiest one's; the rest
are SMs without a block, or with fewer blocks than others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernwright.diagnose.ncu.report.metric_names import (
    BLOCK,
    ELAPSED,
    GRID,
    LIMIT_BLOCKS,
    LIMIT_REGISTERS,
    LIMIT_SHARED,
    LIMIT_WARPS,
    SM_BUSY,
    SMS,
    WAVES,
)
from kernwright.diagnose.ncu.report.profiled_kernel import Counter, ProfiledKernel
from kernwright.diagnose.roofline.gpu_model import common_limits

BUSIEST = "sm__cycles_active.max"
LIMITS = (LIMIT_REGISTERS, LIMIT_SHARED, LIMIT_WARPS, LIMIT_BLOCKS)


@dataclass(frozen=True)
class Activity:
    """Shares of time, from 0 to 1. A factor that the counters do not give is None."""

    whole: float | None
    started: float | None
    balance: float | None
    counters: tuple[Counter, ...]


def activity_of(kernel: ProfiledKernel) -> Activity:
    """Return the activity of the SMs. Without the busiest SM's counter, the grid gives the balance."""
    elapsed, busy, busiest = (kernel.value(name) for name in (ELAPSED, SM_BUSY, BUSIEST))
    used = tuple(kernel.counters[name] for name in (ELAPSED, SM_BUSY, BUSIEST) if name in kernel.counters)
    if not elapsed or busy is None:
        return Activity(None, None, expected_balance(kernel), ())
    whole = min(1.0, busy / elapsed)
    if busiest:
        return Activity(whole, min(1.0, busiest / elapsed), min(1.0, busy / busiest), used)
    balance = expected_balance(kernel)
    return Activity(whole, min(1.0, whole / balance) if balance else None, balance, used)


def waves_of(kernel: ProfiledKernel) -> float | None:
    """Return how many times the grid fills the GPU. It is computed where possible, because reports round it."""
    grid, sms, per_sm = kernel.value(GRID), kernel.value(SMS), blocks_per_sm(kernel)
    if grid and sms and per_sm:
        return grid / (sms * per_sm)
    return kernel.value(WAVES)


def blocks_per_sm(kernel: ProfiledKernel) -> float | None:
    """Return how many blocks fit on an SM at once."""
    known = [value for name in LIMITS if (value := kernel.value(name)) is not None]
    return min(known) if len(known) == len(LIMITS) else None


def expected_balance(kernel: ProfiledKernel) -> float | None:
    """Return the balance of a grid whose blocks all take the same time."""
    grid, sms, waves = kernel.value(GRID), kernel.value(SMS), waves_of(kernel)
    if grid and sms and grid < sms:
        return grid / sms
    if waves is None or waves < 1:
        # Blocks of a part of a wave go to all SMs in turn.
        return None if not grid or not sms else grid / sms / math.ceil(grid / sms)
    return waves / math.ceil(waves)


def resident_warps(kernel: ProfiledKernel) -> float | None:
    """Return the warps that an average SM gets from a grid of less than a wave."""
    grid, sms, block = kernel.value(GRID), kernel.value(SMS), kernel.value(BLOCK)
    return grid * math.ceil(block / common_limits().warp_threads) / sms if grid and sms and block else None
