"""KernelPair: a kernel before and after a change, from two reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from kernwright.diagnose.ncu.bound.kernel_diagnosis import KernelDiagnosis
from kernwright.diagnose.ncu.bound.resource import memory_traffic
from kernwright.diagnose.ncu.report.metric_names import (
    ACHIEVED,
    DRAM_RATE,
    DRAM_READ,
    DRAM_WRITTEN,
    DURATION,
    INSTRUCTIONS,
    ISSUE_ACTIVE,
    REGISTERS,
    THEORETICAL,
)
from kernwright.diagnose.ncu.report.profiled_kernel import Counter

COMPARED = (
    ("duration", DURATION),
    ("read from memory", DRAM_READ),
    ("written to memory", DRAM_WRITTEN),
    ("instructions", INSTRUCTIONS),
    ("issue slots used", ISSUE_ACTIVE),
    ("registers per thread", REGISTERS),
    ("occupancy, theoretical", THEORETICAL),
    ("occupancy, achieved", ACHIEVED),
)


@dataclass(frozen=True)
class ComparedCounter:
    """One figure of a pair. `ratio` is after over before."""

    name: str
    before: Counter | None
    after: Counter | None

    @property
    def ratio(self) -> float | None:
        if self.before is None or self.after is None or not self.before.value:
            return None
        return self.after.value / self.before.value


@dataclass(frozen=True)
class KernelPair:
    """A launch before and after, and how the two were matched."""

    before: KernelDiagnosis
    after: KernelDiagnosis
    matched_by: str

    @property
    def figures(self) -> list[ComparedCounter]:
        """Return the figures that at least one of the two has."""
        found = [self._figure(name, metric) for name, metric in COMPARED]
        traffic = [memory_traffic(side.kernel, side.gpu) for side in (self.before, self.after)]
        if traffic[0] and traffic[1] and traffic[0].shown != traffic[1].shown:
            found.insert(1, self._figure("memory traffic", DRAM_RATE))  # one report lacks the counters of writes
        else:
            found.insert(1, ComparedCounter("memory traffic", *traffic))
        return [figure for figure in found if figure.before or figure.after]

    def _figure(self, name: str, metric: str) -> ComparedCounter:
        return ComparedCounter(name, *(side.kernel.counters.get(metric) for side in (self.before, self.after)))


@dataclass(frozen=True)
class ReportPair:
    """Two reports: the pairs, and the launches that have no partner."""

    pairs: tuple[KernelPair, ...]
    only_before: tuple[KernelDiagnosis, ...]
    only_after: tuple[KernelDiagnosis, ...]

    @property
    def seconds(self) -> tuple[float | None, float | None]:
        """Return the time of all launches before and after. None where a duration is missing."""
        before = [*(pair.before for pair in self.pairs), *self.only_before]
        after = [*(pair.after for pair in self.pairs), *self.only_after]
        return _seconds(before), _seconds(after)


def _seconds(launches: Sequence[KernelDiagnosis]) -> float | None:
    known = [seconds for each in launches if (seconds := each.kernel.value(DURATION)) is not None]
    return sum(known) if len(known) == len(launches) else None


_RULES: tuple[tuple[str, Callable[[KernelDiagnosis], Hashable]], ...] = (
    ("name and launch", lambda each: (each.kernel.name, each.kernel.grid, each.kernel.block)),
    ("name and grid", lambda each: (each.kernel.name, each.kernel.grid)),
    ("name", lambda each: each.kernel.name),
    ("name without arguments", lambda each: each.kernel.short_name),
)


def pair_reports(before: Sequence[KernelDiagnosis], after: Sequence[KernelDiagnosis]) -> ReportPair:
    """Match the launches of two reports: by name, grid and block, then by fewer of them. Equal launches match in order.

    If one launch is left on each side, the two are a pair: the kernel was replaced by another one.
    """
    left, right = list(before), list(after)
    pairs: list[KernelPair] = []
    for words, key in _RULES:
        by_key: dict[Any, list[KernelDiagnosis]] = defaultdict(list)
        for each in right:
            by_key[key(each)].append(each)
        for each in list(left):
            if found := by_key[key(each)]:
                partner = found.pop(0)
                pairs.append(KernelPair(each, partner, words))
                left.remove(each)
                right.remove(partner)
    if len(left) == len(right) == 1:
        pairs.append(KernelPair(left.pop(), right.pop(), "the only ones left"))
    pairs.sort(key=lambda pair: pair.before.kernel.number)
    return ReportPair(tuple(pairs), tuple(left), tuple(right))
