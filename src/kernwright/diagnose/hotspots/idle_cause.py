"""Idle causes: the reason why a GPU was idle, in one sentence."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median

from kernwright.diagnose.idle_time import Waited
from kernwright.diagnose.trace.host_stack import HostRange
from kernwright.diagnose.trace.trace import GpuEvent

LEAST_SHARE = 0.05  # share of the steps' time; shorter idle time is not reported
MOST_SHAPES = 3
LAUNCHES = "launches"


@dataclass(frozen=True, kw_only=True)
class IdleCause:
    """Host code that the GPU waits for in the steps of one name.

    Attributes:
        step: the name of the steps; empty for the whole trace.
        idle_us, span_us: idle time of the GPU, and the time of the steps.
        waited_us: the part of the idle time that passes in this host code.
        sentence: the cause.
        advice: what usually helps.
    """

    step: str
    op: str
    idle_us: float
    span_us: float
    waited_us: float
    sentence: str
    advice: str

    @property
    def share(self) -> float:
        """The part of the steps' time that passes in this wait."""
        return self.waited_us / self.span_us if self.span_us else 0.0


@dataclass(frozen=True)
class IdleAdvice:
    """A remedy that usually helps against waits for an operator.

    Attributes:
        slow: the remedy applies only if a few calls are far slower than the others.
        launch: the operator only prepares and launches work.
    """

    op: re.Pattern[str]
    text: str
    slow: bool = False
    launch: bool = False


@cache
def known_advice() -> tuple[IdleAdvice, ...]:
    """Return the entries of idle_advice.toml, in their order."""
    path = files("kernwright.diagnose.hotspots").joinpath("idle_advice.toml")
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(
        IdleAdvice(
            re.compile(entry["op"], re.IGNORECASE), entry["text"], entry.get("slow", False), entry.get("launch", False)
        )
        for entry in data["advice"]
    )


def idle_cause(step: str, waited: Waited, idle_us: float, span_us: float, steps: int) -> IdleCause:
    """Return the cause that the GPU waits for one operator or runtime call.

    Args:
        step: the name of the steps; empty for the whole trace.
        waited: the host code, and how long the GPU waited for it.
        idle_us, span_us: idle time of the GPU, and the time of the steps.
        steps: how many steps there are. The sentence has times per step.
    """
    share = min(1.0, waited.waited_us / idle_us)
    return IdleCause(
        step=step,
        op=waited.op,
        idle_us=idle_us,
        span_us=span_us,
        waited_us=waited.waited_us,
        sentence=f"{_opening(step, idle_us, span_us, steps)}; {share:.0%} of that it waits for {waited.op}"
        f"{_slow_calls(waited)}.",
        advice=_advice(waited).text,
    )


def launch_cause(
    step: str, waits: Sequence[Waited], idle_us: float, span_us: float, steps: int, events: Sequence[GpuEvent]
) -> IdleCause:
    """Return the cause that the host launches work too slowly, with the times of a launch and of a kernel."""
    waited_us = sum(each.waited_us for each in waits)
    kernel_us = sum(event.duration_us for event in events)
    count = max(len(events), 1)
    per_launch = (kernel_us + waited_us) / count
    most = max(waits, key=lambda each: each.waited_us).op
    return IdleCause(
        step=step,
        op=LAUNCHES,
        idle_us=idle_us,
        span_us=span_us,
        waited_us=waited_us,
        sentence=f"{_opening(step, idle_us, span_us, steps)}; {min(1.0, waited_us / idle_us):.0%} of that it waits for "
        f"the host to launch work: the host needs {per_launch:.1f} us for each of {count / steps:.0f} launches, "
        f"and a kernel takes {kernel_us / count:.1f} us; most of the wait passes in {most}.",
        advice=next(each.text for each in known_advice() if each.launch),
    )


def untold_cause(step: str, idle_us: float, span_us: float, steps: int) -> IdleCause:
    """Return the cause for a trace that does not show what the GPU waits for."""
    return IdleCause(
        step=step,
        op="",
        idle_us=idle_us,
        span_us=span_us,
        waited_us=idle_us,
        sentence=f"{_opening(step, idle_us, span_us, steps)}; what it waits for is not known: the trace has no "
        "launches of the host.",
        advice="record CPU activity as well (activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
    )


def waits_for_launches(waited: Waited) -> bool:
    """Return whether the host code only prepares and launches work."""
    return _advice(waited).launch


def _opening(step: str, idle_us: float, span_us: float, steps: int) -> str:
    where, whole = (f"{step}: ", "a step") if step else ("", "the time")
    times = f"{idle_us / steps / 1e3:.1f} of {span_us / steps / 1e3:.1f} ms"
    busy_us = span_us - idle_us
    longer = f", which takes {span_us / busy_us:.0f} times its GPU work" if span_us > 2 * busy_us > 0 else ""
    return f"{where}the GPU is idle {idle_us / span_us:.0%} of {whole} ({times}{longer})"


def _slow_calls(waited: Waited) -> str:
    slow = waited.outliers
    if not slow:
        return ""
    text = f": {len(slow)} of its {waited.total} calls take {_span([c.duration_us for c in slow])}"
    if waited.total > len(slow):
        text += f", and the others take {_time(waited.typical_us)}"
    shapes = _shapes(slow)
    if len(slow) > 1 and len(shapes) == len(slow):
        text += f"; each slow call has other shapes ({'; '.join(shapes[:MOST_SHAPES])})"
    elif shapes:
        text += f"; the slow calls have the shapes {'; '.join(shapes[:MOST_SHAPES])}"
    return text


def _span(times: Sequence[float]) -> str:
    shortest, longest = min(times), max(times)
    if longest < 1.2 * shortest:
        return _time(median(times))
    return (
        f"{_time(shortest).removesuffix(' ms')} to {_time(longest)}"
        if shortest >= 1e3
        else (f"{_time(shortest)} to {_time(longest)}")
    )


def _time(us: float) -> str:
    return f"{us / 1e3:.0f} ms" if us >= 1e4 else f"{us / 1e3:.2g} ms" if us >= 1e3 else f"{us / 1e3:.2f} ms"


def _shapes(calls: Sequence[HostRange]) -> list[str]:
    """Return the different shapes of calls, of the tensors in which they differ most often."""
    found: dict[str, None] = {}
    for call in calls:
        dims = call.inputs[0] if call.inputs else None
        if isinstance(dims, list):
            tensors = [dim for dim in dims if isinstance(dim, list) and dim]
            found.setdefault(" x ".join(map(str, tensors[:2])), None)
    return list(found)


def _advice(waited: Waited) -> IdleAdvice:
    return next(e for e in known_advice() if e.op.search(waited.op) and (waited.outliers or not e.slow))
