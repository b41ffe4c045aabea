"""Savings: the GPU time that fast paths would remove, predicted from the bytes that they must move."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kernwright.diagnose.hotspots.gpu_work import GpuWork
from kernwright.diagnose.hotspots.hotspot import Coverage, Saving
from kernwright.diagnose.hotspots.traffic import Traffic, traffic_of

UNKNOWN_COPY_SHARE = (0.7, 1.0)  # assumed range for a fused kernel that does not exist yet
DATA_FLOW_ERROR = 0.1  # relative error of the bytes, because a trace has no data flow
LEAST_KERNEL_US = 2.0  # the least time of a kernel, however few bytes it moves
# Without shapes: a fused kernel takes as long as the longest kernel of its chain, within these factors.
LONGEST_KERNEL_FACTORS = (0.8, 1.5)


def traffic_of_work(work: GpuWork) -> Traffic | None:
    kept = tuple(work.pattern.kept) if work.pattern else ()
    return traffic_of(work.calls, kept) if work.calls else None


def copy_share_of(works: Sequence[GpuWork], bandwidth: float | None) -> float | None:
    """Return the share of a copy's bandwidth that single kernels reach; None if it cannot be computed.

    Calls that fit into the cache, or whose launch dominates, are not used.
    """
    if bandwidth is None:
        return None
    moved = time = 0.0
    for work in works:
        traffic = traffic_of_work(work)
        if traffic is None or len(work.calls) != 1 or len(work.calls[0].events) != 1:
            return None
        moved += traffic.bytes
        time += work.us
    return moved / (time * 1e-6) / bandwidth if time else None


def saving_of(works: Sequence[GpuWork], coverage: Coverage, bandwidth: float | None) -> Saving | None:
    """Return the time that the best fast path would save, or that one kernel instead of several would.

    Args:
        bandwidth: bytes per second of a copy on this GPU, read and written; None if it is not known.

    Returns:
        None if nothing is saved, or if the saving cannot be computed from the trace.
    """
    if coverage.status == "covered, on" or (coverage.status == "new" and works[0].kind == "kernel"):
        return None
    path = coverage.path
    if path is not None and works[0].kind == "kernel":
        return _faster_kernel(sum(work.us for work in works), path.speedup or (1.0, 1.0), path.source)
    if path is not None and path.remains is not None:
        return _taken_over(sum(work.us for work in works), path.remains)
    shares = path.copy_share if path is not None else UNKNOWN_COPY_SHARE
    found = [_of_work(work, shares, bandwidth) for work in works]
    with_bytes = all(basis for *_, basis in found)
    fused, low, high = (sum(max(0.0, values[at]) for values in found) for at in (0, 1, 2))
    basis = (
        f"fewest bytes at {shares[0]:.0%} to {shares[1]:.0%} of a copy's {(bandwidth or 0) / 1e12:.2f} TB/s"
        if with_bytes
        else "a fused kernel takes about as long as the longest kernel of the chain"
    )
    return Saving(us=fused, low_us=low, high_us=high, basis=basis)


def _taken_over(us: float, remains: tuple[float, float]) -> Saving:
    low, high = us * (1 - remains[1]), us * (1 - remains[0])
    basis = f"another kernel takes the work over; {remains[0]:.0%} to {remains[1]:.0%} of the time remains"
    return Saving(us=(low + high) / 2, low_us=low, high_us=high, basis=basis)


def _faster_kernel(us: float, speedup: tuple[float, float], source: str) -> Saving:
    low, high = (us * (1 - 1 / factor) for factor in speedup)
    return Saving(us=(low + high) / 2, low_us=low, high_us=high, basis=f"speedup as in {source}")


def _of_work(work: GpuWork, shares: tuple[float, float], bandwidth: float | None) -> tuple[float, float, float, bool]:
    """Return the expected, lowest and highest saving of one occurrence, and whether it rests on bytes."""
    traffic = traffic_of_work(work) if bandwidth else None
    if traffic is None or not bandwidth:
        longest = max(event.duration_us for event in work.events)
        shortest, slowest = (longest * factor for factor in LONGEST_KERNEL_FACTORS)
        if len(work.events) == 1:
            return 0.0, 0.0, 0.0, False
        return work.us - longest, work.us - slowest, work.us - shortest, False
    fastest = traffic.bytes * (1 - DATA_FLOW_ERROR) / bandwidth / shares[1] * 1e6
    slowest = traffic.bytes * (1 + DATA_FLOW_ERROR) / bandwidth / shares[0] * 1e6
    expected = traffic.bytes / bandwidth / ((shares[0] + shares[1]) / 2) * 1e6
    floor = min(LEAST_KERNEL_US, median(event.duration_us for event in work.events))
    saved = [work.us - max(floor, time) for time in (expected, slowest, fastest)]
    return saved[0], saved[1], saved[2], True
