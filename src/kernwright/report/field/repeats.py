"""Repeats: how well device times repeat for rows that were judged more than once."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

MOST_DIFFERENCE = 0.02  # largest relative difference between two sweeps
LEAST_US = 10.0  # shorter times depend on the clock as much as on the kernel


@dataclass(frozen=True)
class DeviceTime:
    """One device time, with its GPU, the version of the judge, and its date."""

    us: float
    gpu: str
    judge: str
    finished: str  # in ISO 8601 format


@dataclass(frozen=True)
class Repeat:
    """The two newest times of a row on one GPU, by one version of the judge."""

    row: str
    before_us: float
    last_us: float

    @property
    def difference(self) -> float:
        return self.last_us / self.before_us - 1

    @property
    def is_alike(self) -> bool:
        return abs(self.difference) <= MOST_DIFFERENCE


@dataclass
class Repeats:
    """Times by contender, task and row, oldest first. Rows with a time below LEAST_US are left out."""

    times: dict[tuple[str, str, str], list[DeviceTime]] = field(default_factory=dict)

    def add(self, contender: str, task: str, row: str, times: list[DeviceTime]) -> None:
        if times and min(time.us for time in times) > LEAST_US:
            self.times[contender, task, row] = times

    def judged_twice(self) -> dict[str, dict[str, list[Repeat]]]:
        """Return repeats by version of the judge, the newest first, and by contender.

        A change of the judge may change times, so that only times of one version are compared.
        """
        found: dict[str, dict[str, list[Repeat]]] = {}
        for (contender, _, row), times in sorted(self.times.items()):
            for own in _grouped(times, lambda time: (time.gpu, time.judge)):
                if len(own) > 1:
                    of_judge = found.setdefault(own[-1].judge, {})
                    of_judge.setdefault(contender, []).append(Repeat(row, own[-2].us, own[-1].us))
        return {judge: found[judge] for judge in sorted(found, key=self._last_seen, reverse=True)}

    def _last_seen(self, judge: str) -> str:
        return max(time.finished for times in self.times.values() for time in times if time.judge == judge)

    def between_gpus(self) -> dict[str, list[float]]:
        """Return, by contender, the relative differences between the newest times of a row on two or more GPUs.

        The difference may come from the GPU, from the run or from the version of the judge.
        """
        found: dict[str, list[float]] = {}
        for (contender, *_), times in sorted(self.times.items()):
            newest = [own[-1].us for own in _grouped(times, lambda time: time.gpu)]
            if len(newest) > 1:
                found.setdefault(contender, []).append(max(newest) / min(newest) - 1)
        return {contender: sorted(own) for contender, own in found.items()}

    def most_apart(self, contender: str, task: str) -> float:
        """Return the largest relative difference between times of a contender on one row of a task."""
        of_rows = [times for (name, own, _), times in self.times.items() if (name, own) == (contender, task)]
        each = [[time.us for time in times] for times in of_rows]
        return max((max(times) / min(times) - 1 for times in each), default=0.0)

    def told(self) -> list[str]:
        """Return the paragraphs of a page."""
        lines = []
        for judge, found in self.judged_twice().items():
            lines.append(
                f"Rows over {LEAST_US:g} us that one version of the judge ({self._last_seen(judge)[:10]}, {judge[:8]}) "
                f"judged twice on one GPU: the second device time is within {MOST_DIFFERENCE:.0%} of the first on "
                f"{_counted(found)}."
            )
            if apart := [f"{name} on {own.row} {own.difference:+.1%}" for name, own in _unlike(found)]:
                lines[-1] += f" Larger differences: {', '.join(apart)}."
        if between := self.between_gpus():
            each = "; ".join(
                f"{name}: median {statistics.median(own):.1%} of {len(own)} rows, largest {own[-1]:.1%}"
                for name, own in between.items()
            )
            lines.append(
                f"Rows over {LEAST_US:g} us judged on several GPUs of this model, by any version of the judge; "
                f"differences between their device times: {each}."
            )
        return lines


def _grouped(times: Iterable[DeviceTime], by: Callable[[DeviceTime], Hashable]) -> list[list[DeviceTime]]:
    groups: dict[Hashable, list[DeviceTime]] = {}
    for time in times:
        groups.setdefault(by(time), []).append(time)
    return list(groups.values())


def _counted(found: dict[str, list[Repeat]]) -> str:
    return ", ".join(f"{name} {sum(own.is_alike for own in each)} of {len(each)}" for name, each in found.items())


def _unlike(found: dict[str, list[Repeat]]) -> list[tuple[str, Repeat]]:
    return [(name, own) for name, each in found.items() for own in each if not own.is_alike]
