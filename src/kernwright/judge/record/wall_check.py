"""Wall check: whether single calls (`wall`) confirm a gain measured in back-to-back calls (`stream`)."""

from __future__ import annotations

from typing import Literal

from kernwright.judge.record.verdict import MetricResult, Unavailable

MIN_CONFIRMED = 0.5  # share of the time gained in back-to-back calls that a single call must gain too
MIN_KERNEL_SHARE = 0.9  # a single call takes at least this share of the time of its kernels in a graph
MAX_LOSS = 0.05  # share of a single call's time that a side with a gain may lose within the interval of `wall`


def less_than_its_kernels(wall: MetricResult, device: MetricResult | Unavailable | None) -> bool:
    """Return whether even the upper end of `wall` is less than `device`. Then work was done outside the clock."""
    if not isinstance(device, MetricResult):
        return False
    return wall.baseline_us / wall.interval[0] < MIN_KERNEL_SHARE * device.candidate_us


def wall_says(stream: MetricResult, wall: MetricResult) -> Literal["gained", "shared", "cannot tell"]:
    """Return whether `wall` confirms the gain of `stream`, refutes it because calls share work, or is too noisy.

    A gain that exists only in back-to-back calls is not a gain of the call, so single calls must confirm it:

    - If the resolution of `wall` (half the width of its interval) is finer than the gain, or the gain is more than a
      few percent, the estimate of `wall` must show half of the gain. If it does not, the gain is refuted only if the
      resolution is finer than that half; otherwise more quads of `wall` are needed.
    - If the gain is small and the resolution too coarse for it, `wall` must at least exclude a loss of more than a few
      percent.
    """
    gained = max(0.0, stream.baseline_us - stream.candidate_us)
    low, high = wall.interval
    wall_gain, max_wall_gain = (wall.baseline_us * (1 - 1 / ratio) for ratio in (wall.ratio, high))
    resolution = wall.baseline_us * (1 / low - 1 / high) / 2
    claims_gain = stream.outcome != "same"
    if max_wall_gain < MIN_CONFIRMED * gained:
        return "shared"
    if claims_gain and wall_gain < MIN_CONFIRMED * gained:
        if resolution <= MIN_CONFIRMED * gained:
            return "shared"
        if resolution <= gained or gained > MAX_LOSS * wall.baseline_us:
            return "cannot tell"  # the gain must show, and noise may have hidden it
    max_loss = wall.baseline_us * (1 / low - 1)
    allowed_loss = MAX_LOSS * wall.baseline_us if claims_gain else MIN_CONFIRMED * stream.baseline_us
    return "gained" if max_loss <= max(gained, allowed_loss) else "cannot tell"


def shared_between_calls(stream: MetricResult, wall: MetricResult, calls: str = "back-to-back calls") -> str | None:
    """Return the reason why `wall` does not confirm the outcome of `stream`; None if it does.

    Args:
        calls: how the calls of `stream` were made, for the reason. `device` is checked in the same way.
    """
    match wall_says(stream, wall):
        case "gained":
            return None
        case "shared" if stream.outcome == "same":
            return (
                f"as fast as the baseline in {calls}, but a single call takes {wall.candidate_us:.0f} us "
                f"and the baseline's {wall.baseline_us:.0f} us"
            )
        case "shared":
            return (
                f"a single call takes {wall.candidate_us:.0f} us, but {stream.candidate_us:.0f} us in {calls}: "
                "work is shared between calls"
            )
    max_loss = wall.baseline_us * (1 / wall.interval[0] - 1)
    return f"a single call may take {max_loss:.0f} us longer than the baseline's: too noisy to tell"
