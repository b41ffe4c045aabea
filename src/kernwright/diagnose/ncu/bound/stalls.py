"""Stalls: the reasons for which the warps of a kernel wait, as shares of their time."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kernwright.diagnose.ncu.report.profiled_kernel import Counter, ProfiledKernel

_PER_ISSUE = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
_LATENCY = re.compile(r"smsp__average_warp_latency_issue_stalled_(\w+)\.ratio")
_SAMPLES = re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+)")
NOT_WAITING = ("selected", "not_selected")  # the warp issues, or is ready and another one issues

MEANINGS = {
    "long_scoreboard": "data from memory or the L1 cache",
    "short_scoreboard": "shared memory or a special function",
    "barrier": "other warps of the block at a barrier",
    "wait": "the fixed latency of the instruction before",
    "math_pipe_throttle": "a busy math pipe",
    "lg_throttle": "a full queue of memory instructions",
    "mio_throttle": "a full queue of shared memory instructions",
    "tex_throttle": "a full queue of texture instructions",
    "drain": "its last stores before it ends",
    "no_instruction": "the instruction cache",
    "no_instructions": "the instruction cache",
    "imc_miss": "the cache of constants",
    "branch_resolving": "the target of a branch",
    "membar": "a memory barrier",
    "sleeping": "its own sleep instruction",
    "dispatch_stall": "the dispatcher",
    "gmma": "the matrix units",
    "warpgroup_arrive": "the matrix units",
}


def stall_shares(kernel: ProfiledKernel) -> dict[str, float]:
    """Return the share of the warps' time by reason, largest first. It is empty if the report has no such counters."""
    for pattern in (_PER_ISSUE, _LATENCY, _SAMPLES):
        found = {
            match[1]: counter.value
            for name, counter in kernel.counters.items()
            if (match := pattern.fullmatch(name)) and not match[1].endswith("_not_issued")
        }
        total = sum(found.values())
        if total > 0:
            return {name: value / total for name, value in sorted(found.items(), key=lambda item: -item[1])}
    return {}


def stall_share(shares: dict[str, float], reasons: Iterable[str]) -> float | None:
    """Return the share of several reasons together, or None if nothing is known about stalls."""
    return sum(shares.get(reason, 0.0) for reason in reasons) if shares else None


def main_stall(shares: dict[str, float]) -> tuple[str, float] | None:
    """Return the most frequent reason for which warps wait, and its share."""
    return next(((name, share) for name, share in shares.items() if name not in NOT_WAITING), None)


def stall_counter(reason: str, share: float) -> Counter:
    """Return a share as a counter, in words: warps waiting for data from memory or the L1 cache (long_scoreboard)."""
    return Counter(share * 100, "%", f"warps waiting for {MEANINGS.get(reason, 'an unknown reason')} ({reason})")
