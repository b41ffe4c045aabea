"""Diagnosis of a kernel: the bounds of a kernel, the counters that show them, and what is unknown.

The rules come from how the hardware works:

- A resource at 90 % of its ceiling is the bound: without it the kernel could become faster by a tenth at most.
- Below that, the time in which SMs have no work comes first (launch, underfill, tail), if it is a fifth or more and no
  resource is at 80 %.
- From 60 % on, requests to a resource begin to wait for each other. The busiest resource is the bound. Of several that
  are nearly as busy (within 15 points), it is the one that warps queue for: when a scheduler has more than one ready
  warp on average, warps wait for their turn to issue, and not for data.
- If nothing is at 60 %, warps wait for latencies. More warps would hide them, so that what limits their number is the
  bound: registers, or another limit of occupancy. If an SM already has half of the warps that it can hold, the bound is
  the latency itself.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from kernwright.diagnose.ncu.bound.activity import (
    LIMITS,
    Activity,
    activity_of,
    resident_warps,
    waves_of,
)
from kernwright.diagnose.ncu.bound.contradiction import contradictions_of, without
from kernwright.diagnose.ncu.bound.profiled_gpu import ProfiledGpu, gpu_of
from kernwright.diagnose.ncu.bound.resource import Resource, held_writes, memory_rate, resources_of
from kernwright.diagnose.ncu.bound.stalls import main_stall, stall_counter, stall_shares
from kernwright.diagnose.ncu.report.metric_names import (
    ACHIEVED,
    DURATION,
    ELIGIBLE,
    GRID,
    LIMIT_REGISTERS,
    REGISTERS,
    SECTORS,
    SECTORS_EXCESSIVE,
    SMS,
    SPILL_SHARE,
    THEORETICAL,
    WAVES,
)
from kernwright.diagnose.ncu.report.profiled_kernel import Counter, ProfiledKernel
from kernwright.diagnose.roofline.gpu_model import GpuModel, common_limits, sm_limits

BoundName = Literal[
    "bandwidth", "L2", "L1", "shared memory", "issue", "compute", "launch", "underfill", "tail", "registers",
    "occupancy", "latency",
]  # fmt: skip
BOUNDS: tuple[BoundName, ...] = get_args(BoundName)

AT_CEILING = 0.9
HIGH = 0.8
BUSY = 0.6
NEAR = 0.15
LEAST_ACTIVITY = 0.8
HALF = 0.5
SPILLING = 10.0  # percent of the requests to the L1 cache that spilled registers cause
LOW_ACHIEVED = 0.6  # achieved divided by theoretical occupancy; below it, warps end early
EXCESSIVE = 0.25  # share of the sectors that hold no requested byte


@dataclass(frozen=True)
class KernelBound:
    """One bound of a kernel, in words, with the counters that show it."""

    name: BoundName
    what: str
    counters: tuple[Counter, ...]

    @property
    def says(self) -> str:
        return str(_texts()[self.name]["says"])

    @property
    def helps(self) -> tuple[str, ...]:
        """Return the remedies that usually help against this bound."""
        return tuple(_texts()[self.name]["helps"])


@dataclass(frozen=True, kw_only=True)
class KernelDiagnosis:
    """The bounds of one launch.

    Attributes:
        main: the most important bound, or None if the counters do not show it.
        others: further bounds, the next important one first.
        observations: facts that a remedy needs, such as access that is not coalesced.
        unknown: questions without an answer, with the counters that are missing.
        contradictions: counters that were not used because they cannot all be true.
    """

    kernel: ProfiledKernel
    gpu: ProfiledGpu | None
    main: KernelBound | None
    others: tuple[KernelBound, ...]
    observations: tuple[str, ...]
    unknown: tuple[str, ...]
    contradictions: tuple[str, ...]


def diagnose(
    kernel: ProfiledKernel, report: Sequence[ProfiledKernel] = (), named: GpuModel | None = None
) -> KernelDiagnosis:
    """Return the bounds of a kernel.

    Args:
        report: all kernels of its report, which may tell the GPU.
        named: the GPU model that the user named, if any.
    """
    gpu = gpu_of(kernel, report or [kernel], named)
    contradictions = contradictions_of(kernel, gpu)
    usable = without(kernel, contradictions)
    case = _Case(usable, gpu)
    ranked = case.ranked()
    return KernelDiagnosis(
        kernel=kernel,
        gpu=gpu,
        main=ranked[0] if ranked and case.is_certain else None,
        others=tuple(ranked[1:] if case.is_certain else ranked),
        observations=tuple(case.observations()),
        unknown=tuple(case.unknown()),
        contradictions=tuple(each.what for each in contradictions),
    )


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads(files("kernwright.diagnose.ncu.bound").joinpath("bounds.toml").read_text(encoding="utf-8"))


class _Case:
    """The reasoning about one launch."""

    def __init__(self, kernel: ProfiledKernel, gpu: ProfiledGpu | None) -> None:
        self.kernel = kernel
        self.gpu = gpu
        self.active: Activity = activity_of(kernel)
        self.stalls = stall_shares(kernel)
        self.resources = resources_of(kernel, gpu, self.active, self.stalls)

    @property
    def known(self) -> set[str]:
        return {resource.name for resource in self.resources}

    @property
    def is_certain(self) -> bool:
        """Return whether the counters suffice to name a bound.

        The counters of memory and issue are needed to know that nothing is busy. A resource at its ceiling, or SMs
        without work, need no other counter.
        """
        if self._may_be_memory():
            return False
        if {"bandwidth", "issue"} <= self.known:
            return True
        enough = {"bandwidth": HIGH, "issue": HIGH}
        is_busy = any(each.share >= enough.get(each.name, AT_CEILING) for each in self.resources)
        return is_busy or self._idle_bound() is not None

    def ranked(self) -> list[KernelBound]:
        """Return the bounds, the most important one first."""
        busy = self._busy()
        idle = self._idle_bound()
        first: list[KernelBound] = []
        if idle and max((each.of_time for each in self.resources), default=0.0) < HIGH:
            first = [idle]
        elif not busy and {"bandwidth", "issue"} <= self.known:
            first = [self._waiting_bound()]
        found = first + [_as_bound(resource) for resource in busy]
        found += [bound for bound in (idle, self._short_bound()) if bound and bound.name not in _names(found)]
        return found

    def _busy(self) -> list[Resource]:
        """Return the resources that are busy, the one that bounds the kernel first."""
        busy = [resource for resource in self.resources if resource.share >= BUSY]
        if any(resource.name == "bandwidth" for resource in busy):
            busy = [resource for resource in busy if resource.name != "L2"]  # memory traffic passes through it
        if not busy or busy[0].share >= AT_CEILING:
            return busy
        rivals = [resource for resource in busy if resource.share >= busy[0].share - NEAR]
        queued = [resource for resource in rivals if resource.queued]
        first = queued[0] if queued else busy[0]
        return [first, *(resource for resource in busy if resource is not first)]

    def _may_be_memory(self) -> bool:
        """Return whether the L2 cache is the busiest part, but uncounted memory traffic may be the real bound.

        That is possible if the report lacks the writes that the cache still holds when the kernel ends, and if the
        kernel is so short that these writes can be a large part of the traffic.
        """
        busy = self._busy()
        rate, duration = memory_rate(self.kernel), self.kernel.value(DURATION)
        if not busy or busy[0].name != "L2" or rate is None or not duration or self.gpu is None:
            return False
        if not self.gpu.l2_bytes or held_writes(self.kernel, self.gpu) is not None:
            return False
        return (rate + self.gpu.l2_bytes / duration) / self.gpu.memory_ceiling >= BUSY

    def _idle_bound(self) -> KernelBound | None:
        """Return the reason why SMs have no work for a part of the time; None if there is none or it is unknown."""
        active, grid, sms = self.active, self.kernel.value(GRID), self.kernel.value(SMS)
        if active.whole is None:
            return self._idle_by_grid()
        if active.whole >= LEAST_ACTIVITY:
            return self._thin_grid() or self._thin_wave()
        share = Counter(active.whole * 100, "%", "time in which an average SM has work")
        counters = (share, *active.counters, *self._used(GRID, SMS, WAVES))
        if active.started is not None and active.balance is not None and active.started < active.balance:
            return KernelBound("launch", f"even the busiest SM works {active.started:.0%} of the time", counters)
        if grid is not None and sms is not None and grid < sms:
            return KernelBound("underfill", f"{grid:.0f} blocks for {sms:.0f} SMs", counters)
        if active.balance is None:
            return KernelBound("launch", f"an average SM works {active.whole:.0%} of the time", counters)
        name: BoundName = "underfill" if (waves_of(self.kernel) or 1.0) < 1 else "tail"
        return KernelBound(name, f"the average SM works {active.balance:.0%} as long as the busiest one", counters)

    def _idle_by_grid(self) -> KernelBound | None:
        """Judge by the grid alone. This is for reports without the counters of busy SMs."""
        grid, sms, balance = self.kernel.value(GRID), self.kernel.value(SMS), self.active.balance
        counters = self._used(GRID, SMS, WAVES)
        if grid is not None and sms is not None and grid < LEAST_ACTIVITY * sms:
            return KernelBound("underfill", f"{grid:.0f} blocks for {sms:.0f} SMs", counters)
        waves = waves_of(self.kernel)
        if balance is not None and balance < LEAST_ACTIVITY and waves is not None and waves > 1:
            what = f"{waves:.2f} waves: with blocks of equal length the SMs work {balance:.0%} of the time"
            return KernelBound("tail", what, counters)
        return self._thin_grid()

    def _thin_grid(self) -> KernelBound | None:
        """Return an underfill if all SMs have a block, but the grid is so small that they have few warps and wait."""
        waves, warps, most = waves_of(self.kernel), resident_warps(self.kernel), self._warps_that_fit()
        if waves is None or waves >= HALF or warps is None or most is None or self._busy():
            return None
        if not {"bandwidth", "issue"} <= self.known or warps >= HALF * most:
            return None
        what = f"{warps:.1f} warps per SM, and {most:.0f} would fit"
        return KernelBound("underfill", what, self._used(WAVES, GRID, SMS, ACHIEVED, THEORETICAL))

    def _thin_wave(self) -> KernelBound | None:
        """Return a tail if the last wave is small: every SM has work, but few blocks, and the occupancy is low."""
        waves, reached, most = waves_of(self.kernel), self.kernel.value(ACHIEVED), self.kernel.value(THEORETICAL)
        if waves is None or waves <= 1 or reached is None or not most or reached >= LEAST_ACTIVITY * most:
            return None
        filled = waves / math.ceil(waves)
        if filled >= LEAST_ACTIVITY:
            return None
        what = f"{waves:.2f} waves: the last one is small, and only {filled:.0%} of the places for blocks are used"
        return KernelBound("tail", what, self._used(WAVES, GRID, SMS, ACHIEVED, THEORETICAL))

    def _warps_that_fit(self) -> float | None:
        share, limits = self.kernel.value(THEORETICAL), sm_limits().get(self.kernel.capability or "")
        most = self.kernel.value("device__attribute_max_warps_per_multiprocessor") or (limits and limits.warps)
        return share / 100 * most if share is not None and most else None

    def _short_bound(self) -> KernelBound | None:
        """Return a launch bound if the kernel takes less time than its launch."""
        duration, host_launch_s = self.kernel.value(DURATION), common_limits().host_launch_s
        if duration is None or duration >= host_launch_s:
            return None
        launch = Counter(host_launch_s, "s", "a launch by the host (C++ op on an H200's host)")
        return KernelBound("launch", "the host needs longer to launch it", (*self._used(DURATION), launch))

    def _waiting_bound(self) -> KernelBound:
        """Return the bound of a kernel whose warps wait although no resource is busy."""
        stall = main_stall(self.stalls)
        waits = (stall_counter(*stall),) if stall else ()
        spills = self.kernel.value(SPILL_SHARE)
        if spills is not None and spills >= SPILLING:
            return KernelBound("registers", "registers spill to memory", (*self._used(SPILL_SHARE, REGISTERS), *waits))
        most, reached = self.kernel.value(THEORETICAL), self.kernel.value(ACHIEVED)
        limits = {name: value for name in LIMITS if (value := self.kernel.value(name)) is not None}
        if most is not None and most <= HALF * 100:
            lowest = [name for name, value in limits.items() if value == min(limits.values())]
            name: BoundName = "registers" if LIMIT_REGISTERS in lowest else "occupancy"
            what = f"at most {most:.0f} % of an SM's warps fit" + (f", limited by {_words(lowest)}" if lowest else "")
            used = self._used(THEORETICAL, ACHIEVED, *lowest, *([REGISTERS] if name == "registers" else []))
            return KernelBound(name, what, (*used, *waits))
        if most is not None and reached is not None and reached < LOW_ACHIEVED * most:
            what = f"{reached:.0f} % of an SM's warps are there on average, and {most:.0f} % would fit"
            return KernelBound("occupancy", what, (*self._used(ACHIEVED, THEORETICAL, WAVES), *waits))
        busiest = self.resources[0]
        what = f"the busiest part, {busiest.what}, is at {busiest.share:.0%} of its ceiling"
        used = self._used(THEORETICAL, ACHIEVED, ELIGIBLE)
        return KernelBound("latency", what, (*waits, *used, *busiest.counters[:2]))

    def observations(self) -> list[str]:
        """Return facts about the accesses that a remedy needs."""
        found = []
        excessive, sectors = self.kernel.value(SECTORS_EXCESSIVE), self.kernel.value(SECTORS)
        if excessive is not None and sectors and excessive / sectors >= EXCESSIVE:
            counters = ", ".join(map(str, self._used(SECTORS_EXCESSIVE, SECTORS)))
            found.append(f"{excessive / sectors:.0%} of the sectors are needless: access is not coalesced ({counters})")
        spills = self.kernel.counters.get(SPILL_SHARE)
        if spills and spills.value >= SPILLING:
            found.append(f"registers spill to memory ({spills})")
        return found

    def unknown(self) -> list[str]:
        """Return the questions without an answer, each with the section of ncu that has the missing counters."""
        found = []
        if "bandwidth" not in self.known:
            found.append("whether memory bounds it: no usable dram__ counters (section MemoryWorkloadAnalysis)")
        if self._may_be_memory():
            found.append(
                "whether memory or the L2 cache bounds it: no usable counters of the writes that the cache still holds "
                "when the kernel ends (page raw)"
            )
        if "issue" not in self.known:
            found.append("whether instruction issue bounds it: no usable smsp__issue_active (section SchedulerStats)")
        if self.kernel.value(ELIGIBLE) is None:
            found.append("whether warps queue for issue: no usable smsp__warps_eligible (section SchedulerStats)")
        if self.active.whole is None:
            found.append(
                "how long the SMs had no work: no usable sm__cycles_active, gpc__cycles_elapsed (section SpeedOfLight)"
            )
        if self.kernel.value(THEORETICAL) is None:
            found.append("whether more warps would fit: no usable occupancy counters (section Occupancy)")
        if not self.stalls:
            found.append("what warps wait for: no stall counters (section WarpStateStats, page raw)")
        return found

    def _used(self, *names: str) -> tuple[Counter, ...]:
        return tuple(self.kernel.counters[name] for name in names if name in self.kernel.counters)


def _as_bound(resource: Resource) -> KernelBound:
    what = f"{resource.what} at {resource.share:.0%} of its ceiling"
    return KernelBound(BOUNDS[BOUNDS.index(resource.name)], what, resource.counters)


def _names(bounds: Sequence[KernelBound]) -> set[str]:
    return {bound.name for bound in bounds}


def _words(limits: Sequence[str]) -> str:
    return " and ".join(name.removeprefix("launch__occupancy_limit_").replace("_", " ") for name in limits)
