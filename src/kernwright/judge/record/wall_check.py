"""Wall check: whether a call by itself confirms a gain that a run of calls shows."""

from __future__ import annotations

from typing import Literal

from kernwright.judge.record.verdict import MetricResult, Unavailable

SHARED_WORK = 0.5  # a call by itself must show at least this share of the time that a call in a run of calls gains


KERNELS_IN_CALL = 0.9  # of what its kernels take in a graph, a call by itself takes at least


MOST_LOSS = 0.05  # of a call by itself, that a side which claims a gain may lose there for all that `wall` can tell


def less_than_its_kernels(wall: MetricResult, device: MetricResult | Unavailable | None) -> bool:
    """Whether `wall`, at its longest, is shorter than `device`: then somebody worked outside the clock."""
    if not isinstance(device, MetricResult):
        return False
    return wall.baseline_us / wall.interval[0] < KERNELS_IN_CALL * device.candidate_us


def wall_says(stream: MetricResult, wall: MetricResult) -> Literal["gained", "shared", "cannot tell"]:
    """A gain that exists only in a run of calls was not earned by the call. It is for the gain to show by itself.

    Where `wall` is finer than the gain, or the gain is more than a few percent, its middle must show half of it. One
    that does not is short of it only where `wall` is finer than that half; where not, more of `wall` is to tell. Of a
    small gain that `wall` is too coarse for, it must at least exclude a loss of more than a few percent. On a busy
    machine it may show anything, and so tells nothing.
    """
    gained = max(0.0, stream.baseline_us - stream.candidate_us)
    low, high = wall.interval
    alone, most_alone = (wall.baseline_us * (1 - 1 / ratio) for ratio in (wall.ratio, high))
    fineness = wall.baseline_us * (1 / low - 1 / high) / 2
    claims_gain = stream.outcome != "same"
    if most_alone < SHARED_WORK * gained:
        return "shared"
    if claims_gain and alone < SHARED_WORK * gained:
        if fineness <= SHARED_WORK * gained:
            return "shared"
        if fineness <= gained or gained > MOST_LOSS * wall.baseline_us:
            return "cannot tell"  # it must show, and noise may have hidden it
    most_lost = wall.baseline_us * (1 / low - 1)
    bearable = MOST_LOSS * wall.baseline_us if claims_gain else SHARED_WORK * stream.baseline_us
    return "gained" if most_lost <= max(gained, bearable) else "cannot tell"


def shared_between_calls(stream: MetricResult, wall: MetricResult) -> str | None:
    """The reason not to believe a gain, where `wall` gives one."""
    match wall_says(stream, wall):
        case "gained":
            return None
        case "shared" if stream.outcome == "same":
            return (
                f"as fast as the baseline in a run of calls; by itself a call takes {wall.candidate_us:.0f} us, "
                f"one of the baseline's {wall.baseline_us:.0f} us"
            )
        case "shared":
            return (
                f"a call by itself takes {wall.candidate_us:.0f} us, {stream.candidate_us:.0f} us in a run of calls: "
                "work is shared between calls"
            )
    most_lost = wall.baseline_us * (1 / wall.interval[0] - 1)
    return f"a call by itself may take {most_lost:.0f} us longer than the baseline's: too noisy to tell"
