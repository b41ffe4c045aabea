"""Resource: a part of the GPU that a kernel uses, how close it is to its ceiling, and whether warps queue for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernwright.diagnose.ncu.bound.activity import Activity
from kernwright.diagnose.ncu.bound.profiled_gpu import ProfiledGpu
from kernwright.diagnose.ncu.bound.stalls import stall_counter, stall_share
from kernwright.diagnose.ncu.report.metric_names import (
    COMPUTE_SHARE,
    DRAM_RATE,
    DRAM_READ,
    DRAM_SHARE,
    DRAM_WRITTEN,
    DURATION,
    ELIGIBLE,
    ISSUE_ACTIVE,
    ISSUE_ELAPSED,
    L1_SHARE,
    L2_HITS,
    L2_SHARE,
    L2_WRITTEN,
    L2_WRITTEN_SECTORS,
    SHARED_CONFLICTS,
    SHARED_WAVEFRONTS,
    WAVES,
)
from kernwright.diagnose.ncu.report.profiled_kernel import Counter, ProfiledKernel
from kernwright.diagnose.roofline.gpu_model import common_limits

QUEUE = 1.0  # warps per scheduler that are ready, above which they wait for each other and not for data
QUEUED_SHARE = 0.2  # share of the warps' time spent waiting for a resource, above which they queue for it
SECTOR_BYTES = 32
CONFLICT_SHARE = 0.3  # share of the accesses to shared memory that repeat an access because of a bank conflict
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "tex_throttle", "drain")
L1_STALLS = ("lg_throttle", "mio_throttle", "tex_throttle", "short_scoreboard")
PIPE_STALLS = ("math_pipe_throttle", "gmma", "warpgroup_arrive", "dispatch_stall")
_PIPE = re.compile(
    r"sm__(?:inst_executed_)?pipe_(?P<pipe>tensor\w*?|alu|fma|fmaheavy|fmalite|fp16|fp64|xu)"
    r"(?:_cycles_active)?\.avg\.pct_of_peak_sustained_active"
)
PIPES = {
    "alu": "integer and logic pipe", "fma": "FP32 pipe", "fmaheavy": "FP32 and integer multiply pipe",
    "fmalite": "FP32 pipe", "fp16": "FP16 pipe", "fp64": "FP64 pipe", "xu": "special function pipe",
}  # fmt: skip


@dataclass(frozen=True)
class Resource:
    """The use of one resource.

    Attributes:
        name: the name of the bound if this resource is the busiest one.
        share: how close it is to its ceiling while the SMs have work, 0 to 1.
        of_time: the same over the whole duration, start, end and idle SMs included.
        queued: whether warps wait for it, or None if the counters do not say so.
        what: the resource in words.
    """

    name: str
    share: float
    of_time: float
    queued: bool | None
    what: str
    counters: tuple[Counter, ...]


def resources_of(
    kernel: ProfiledKernel, gpu: ProfiledGpu | None, active: Activity, stalls: dict[str, float]
) -> list[Resource]:
    """Return the resources that the counters tell about, the busiest first."""
    found = [
        _memory(kernel, gpu, stalls),
        _l2(kernel, stalls),
        _l1(kernel, active, stalls),
        _issue(kernel, active),
        _pipe(kernel, active, stalls),
    ]
    return sorted((resource for resource in found if resource), key=lambda resource: -resource.share)


def _memory(kernel: ProfiledKernel, gpu: ProfiledGpu | None, stalls: dict[str, float]) -> Resource | None:
    traffic, share = memory_traffic(kernel, gpu), kernel.value(DRAM_SHARE)
    used = _used(kernel, (DRAM_RATE, DRAM_SHARE, DRAM_READ, DRAM_WRITTEN, ELIGIBLE))
    if traffic is not None and gpu is not None:
        reached = traffic.value / gpu.memory_ceiling
        derived = [traffic, Counter(gpu.memory_ceiling, "byte/s", f"ceiling: {gpu.ceiling_source}")]
    elif share is not None:
        usual = common_limits().copy_share
        reached = share / 100 / usual
        derived = [Counter(usual * 100, "%", "share of the peak that a copy usually reaches")]
    else:
        return None
    return Resource(
        name="bandwidth",
        share=reached,
        of_time=reached,
        queued=_waits_for_data(kernel, stalls),
        what="memory",
        counters=(*derived, *used),
    )


def memory_traffic(kernel: ProfiledKernel, gpu: ProfiledGpu | None) -> Counter | None:
    """Return the bytes per second that the kernel makes the memory move.

    Its last writes are still in the L2 cache when it ends. The memory moves them later, and the counters of the memory
    lack them. They are known from what the SMs wrote to the L2 cache, and are at most the cache's size.
    """
    rate, duration = memory_rate(kernel), kernel.value(DURATION)
    if rate is None:
        return None
    held = held_writes(kernel, gpu)
    if held is None or not duration:
        return Counter(rate, "byte/s", "memory traffic")
    least = "" if kernel.value(DRAM_WRITTEN) is not None else "at least "
    shown = f"memory traffic, with {least}the writes that the L2 cache still holds"
    return Counter(rate + held / duration, "byte/s", shown)


def memory_rate(kernel: ProfiledKernel) -> float | None:
    """Return the bytes per second that the memory moved while the kernel ran."""
    rate, duration = kernel.value(DRAM_RATE), kernel.value(DURATION)
    read, written = kernel.value(DRAM_READ), kernel.value(DRAM_WRITTEN)
    if rate is None and duration and read is not None and written is not None:
        return (read + written) / duration
    return rate


def held_writes(kernel: ProfiledKernel, gpu: ProfiledGpu | None) -> float | None:
    """Return the bytes of the writes that the L2 cache still holds when the kernel ends; None if they are unknown.

    The page of details does not have the bytes written to memory. For it, a lower limit is returned: writes hit the
    cache, so all misses are reads of the memory. These reads are at least (1 - hits) / hits times the bytes sent to the
    cache. Only the rest of the memory's traffic can be writes.
    """
    if not gpu or not gpu.l2_bytes:
        return None
    sectors, written = kernel.value(L2_WRITTEN_SECTORS), kernel.value(DRAM_WRITTEN)
    sent = kernel.value(L2_WRITTEN) or (SECTOR_BYTES * sectors if sectors is not None else None)
    if sent is None:
        return None
    if written is None:
        rate, duration, hits = memory_rate(kernel), kernel.value(DURATION), (kernel.value(L2_HITS) or 0.0) / 100
        if rate is None or not duration or not 0 < hits <= 1:
            return None
        written = rate * duration - sent * (1 - hits) / hits
    return min(max(sent - max(written, 0.0), 0.0), gpu.l2_bytes)


def _l2(kernel: ProfiledKernel, stalls: dict[str, float]) -> Resource | None:
    share = kernel.value(L2_SHARE)
    if share is None:
        return None
    used = _used(kernel, (L2_SHARE, DRAM_SHARE))
    return Resource(
        name="L2",
        share=share / 100,
        of_time=share / 100,
        queued=_waits_for_data(kernel, stalls),
        what="L2 cache",
        counters=used,
    )


def _l1(kernel: ProfiledKernel, active: Activity, stalls: dict[str, float]) -> Resource | None:
    share = kernel.value(L1_SHARE)
    if share is None:
        return None
    waiting = stall_share(stalls, L1_STALLS)
    queued = None if waiting is None else waiting >= QUEUED_SHARE
    conflicts = conflict_share(kernel)
    used = _used(kernel, (L1_SHARE,)) + _stalled(stalls, L1_STALLS)
    if conflicts is not None and conflicts >= CONFLICT_SHARE and _mostly_shared(kernel):
        used += _used(kernel, (SHARED_CONFLICTS, SHARED_WAVEFRONTS))
        return Resource(
            name="shared memory",
            share=share / 100,
            of_time=_over(share, active),
            queued=queued,
            what="shared memory",
            counters=used,
        )
    return Resource(
        name="L1",
        share=share / 100,
        of_time=_over(share, active),
        queued=queued,
        what="L1 cache and shared memory",
        counters=used,
    )


def conflict_share(kernel: ProfiledKernel) -> float | None:
    """Return the share of the accesses to shared memory that bank conflicts add."""
    conflicts, wavefronts = kernel.value(SHARED_CONFLICTS), kernel.value(SHARED_WAVEFRONTS)
    return None if conflicts is None or not wavefronts else conflicts / wavefronts


def _mostly_shared(kernel: ProfiledKernel) -> bool:
    shared = kernel.value(SHARED_WAVEFRONTS + ".pct_of_peak_sustained_elapsed")
    every = kernel.value("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed")
    return shared is None or every is None or shared >= every / 2


def _issue(kernel: ProfiledKernel, active: Activity) -> Resource | None:
    share, whole = kernel.value(ISSUE_ACTIVE), kernel.value(ISSUE_ELAPSED)
    if share is None and whole is None:
        return None
    if share is None:
        share = min(100.0, (whole or 0.0) / (active.whole or 1.0))
    ready = kernel.value(ELIGIBLE)
    queued = None if ready is None else ready >= QUEUE
    used = _used(kernel, (ISSUE_ACTIVE, ISSUE_ELAPSED, ELIGIBLE, WAVES))
    of_time = whole / 100 if whole is not None else _over(share, active)
    return Resource(
        name="issue",
        share=share / 100,
        of_time=of_time,
        queued=queued,
        what="instruction issue",
        counters=used,
    )


def _pipe(kernel: ProfiledKernel, active: Activity, stalls: dict[str, float]) -> Resource | None:
    """Return the busiest math pipe. The page of details names only the busiest part of the SM, maybe the issue."""
    shares = {name: counter.value for name, counter in kernel.counters.items() if _PIPE.fullmatch(name)}
    waiting = stall_share(stalls, PIPE_STALLS)
    queued = None if waiting is None else waiting >= QUEUED_SHARE
    if not shares:
        return _unnamed_pipe(kernel, active, queued)
    name = max(shares, key=lambda each: shares[each])
    match = _PIPE.fullmatch(name)
    pipe = match["pipe"] if match else ""
    what = "tensor pipe" if pipe.startswith("tensor") else PIPES[pipe]
    used = _used(kernel, (name,)) + _stalled(stalls, PIPE_STALLS)
    return Resource(
        name="compute",
        share=shares[name] / 100,
        of_time=_over(shares[name], active),
        queued=queued,
        what=what,
        counters=used,
    )


def _unnamed_pipe(kernel: ProfiledKernel, active: Activity, queued: bool | None) -> Resource | None:
    share, issue = kernel.value(COMPUTE_SHARE), kernel.value(ISSUE_ELAPSED)
    if share is None or issue is None or share <= issue + 1:
        return None  # the issue is the busiest part, or cannot be distinguished from a pipe
    reached = min(1.0, share / 100 / (active.whole or 1.0))
    return Resource(
        name="compute",
        share=reached,
        of_time=share / 100,
        queued=queued,
        what="math pipe",
        counters=_used(kernel, (COMPUTE_SHARE, ISSUE_ELAPSED)),
    )


def _waits_for_data(kernel: ProfiledKernel, stalls: dict[str, float]) -> bool | None:
    """Return whether the schedulers run out of ready warps because warps wait for memory."""
    ready, waiting = kernel.value(ELIGIBLE), stall_share(stalls, MEMORY_STALLS)
    if ready is None:
        return None if waiting is None else waiting >= 0.5
    return ready < QUEUE and (waiting is None or waiting >= QUEUED_SHARE)


def _over(percent: float, active: Activity) -> float:
    return percent / 100 * (1.0 if active.whole is None else active.whole)


def _stalled(stalls: dict[str, float], reasons: Iterable[str]) -> tuple[Counter, ...]:
    known = [(reason, stalls[reason]) for reason in reasons if stalls.get(reason, 0.0) >= 0.05]
    return tuple(stall_counter(reason, share) for reason, share in known)


def _used(kernel: ProfiledKernel, names: Iterable[str]) -> tuple[Counter, ...]:
    return tuple(kernel.counters[name] for name in names if name in kernel.counters)
