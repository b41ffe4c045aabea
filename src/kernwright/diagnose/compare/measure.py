"""Measure: one figure of a run that a comparison has a row for."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from kernwright.diagnose.perf_dump.dump import PerfDump

Kind = Literal["end to end", "denoise", "step", "stage", "memory"]
GATED: tuple[Kind, ...] = ("end to end", "denoise", "step", "memory")  # a slower stage changes these, too
SIZES = {
    "peak_reserved_mb": "peak memory, reserved",
    "peak_allocated_mb": "peak memory, allocated",
    "peak_host_anon_mb": "peak memory of the host",
}


@dataclass(frozen=True)
class Measure:
    """A figure by name. `read` returns None for a run that lacks it."""

    name: str
    kind: Kind
    read: Callable[[PerfDump], float | None]

    @property
    def unit(self) -> str:
        return "MB" if self.kind == "memory" else "ms"

    def values(self, dumps: Sequence[PerfDump]) -> list[float]:
        return [value for dump in dumps if (value := self.read(dump)) is not None]


def measures_of(dumps: Sequence[PerfDump]) -> list[Measure]:
    """Return the measures that at least one run has: end to end, denoise, stages in order, memory."""
    found = [
        Measure("end to end", "end to end", lambda dump: dump.end_to_end_ms),
        Measure("denoise", "denoise", lambda dump: dump.denoise_ms),
        Measure("denoise step, median", "step", median_step),
    ]
    repeats: Counter[str] = Counter()
    for dump in dumps:
        repeats |= Counter(stage.name for stage in dump.steps)
    for name, times in repeats.items():
        shown = f"{name} ({times} times)" if times > 1 else name
        found.append(Measure(shown, "stage", partial(_stage, name)))
    found += [Measure(shown, "memory", partial(_size, key)) for key, shown in SIZES.items()]
    return [measure for measure in found if measure.values(dumps)]


def median_step(dump: PerfDump) -> float | None:
    times = [step.duration_ms for step in dump.denoise_steps_ms]
    return statistics.median(times) if times else None


def _stage(name: str, dump: PerfDump) -> float | None:
    return dump.stage_totals.get(name)


def _size(key: str, dump: PerfDump) -> float | None:
    return dump.largest(key)
