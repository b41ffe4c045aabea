"""ProfiledKernel: one launch in a report of Nsight Compute, with its counters in base units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernwright.diagnose.ncu.report.quantity import in_words

MOST_NAME = 60  # characters of a kernel's name in tables


@dataclass(frozen=True)
class Counter:
    """One counter of one launch.

    `shown` is the name that the report has: the metric's own name, or the label on the page of details.
    """

    value: float
    unit: str
    shown: str

    def __str__(self) -> str:
        return f"{self.shown} = {in_words(self.value, self.unit)}"


@dataclass(frozen=True, kw_only=True)
class ProfiledKernel:
    """One launch: what ran, on which GPU, and its counters by metric name."""

    number: int  # position in the report
    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    device: str | None = None  # name of the GPU, where the report has it
    capability: str | None = None
    counters: Mapping[str, Counter] = field(default_factory=dict)

    def value(self, metric: str) -> float | None:
        """Return a counter's value in base units, or None if the report does not have it."""
        found = self.counters.get(metric)
        return found.value if found else None

    @property
    def short_name(self) -> str:
        """Return the name without template arguments, parameters and return type."""
        plain = self.name
        while (inner := re.sub(r"<[^<>]*>", "", plain)) != plain:
            plain = inner
        plain = plain.replace("::::", "::").partition("(")[0].strip().rpartition(" ")[2].lstrip(":") or self.name
        return plain if len(plain) <= MOST_NAME else plain[: MOST_NAME - 1] + "…"

    @property
    def shape(self) -> str:
        """Return grid and block as text."""
        parts = [f"{word} {'x'.join(map(str, sizes))}" for word, sizes in (("grid", self.grid), ("block", self.block))]
        return ", ".join(part for part in parts if not part.endswith(" "))
