"""SwapReport: the outcomes of all swaps in one run of a program, over all of its processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernwright.diagnose.swap.swap import Swap
from kernwright.diagnose.swap.swap_log import read_parts

NEVER_MET = (
    "was never imported or defined in the program: check the spelling, and `What cannot be seen` in docs/capture.md"
)
NEVER_CALLED = "was found, but never called from Python: compiled code and replayed CUDA graphs make no calls"


@dataclass
class SwapOutcome:
    """The outcome of one swap."""

    swap: Swap
    binding: str = ""
    is_found: bool = False
    calls: Counter[str] = field(default_factory=Counter)  # swapped, compared, original
    reasons: Counter[str] = field(default_factory=Counter)  # reasons for calls that went to the original
    checks: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # mismatches and errors: the swap has ended
    problems: list[str] = field(default_factory=list)

    @property
    def worst(self) -> dict[str, Any] | None:
        """The comparison with the largest error."""
        return max(self.checks, key=lambda check: check.get("max_error", 0.0), default=None)

    @property
    def failure(self) -> str | None:
        """The reason why the run is no result for the candidate; None if it ran and agreed."""
        if self.faults:
            return f"the swap has ended, and the original took over: {self.faults[0]}"
        if self.problems:
            return self.problems[0]
        if not self.is_found:
            return NEVER_MET
        if not sum(self.calls.values()):
            return NEVER_CALLED
        if not self.calls["swapped"] and not self.calls["compared"]:
            return f"no call was covered: {', '.join(self.reasons)}"
        return None

    def lines(self) -> Iterator[str]:
        """Yield the outcome in words."""
        yield f"{self.swap.target} = {self.swap.text}" + (f" with {self.binding}" if self.binding else "")
        yield f"  {self.calls['swapped']} call(s) swapped, {self.calls['compared']} compared (both ran)" + (
            f", {self.calls['original']} to the original" if self.calls["original"] else ""
        )
        yield from (f"  {count} to the original: {reason}" for reason, count in self.reasons.most_common())
        if (worst := self.worst) is not None:
            own = worst.get("own_error")
            beside = f"; the original's own error is {own:.3g}" if own is not None else ""
            yield f"  largest error {worst.get('max_error', 0.0):.3g} against {worst.get('against', '')}{beside}"
        if self.failure:
            yield f"  failed: {self.failure}"


@dataclass
class SwapReport:
    """The outcomes of all swaps of a run."""

    outcomes: list[SwapOutcome]
    extra_ms: float = 0.0  # time that comparisons and the loading of candidates added to the run
    processes: int = 0

    @property
    def failures(self) -> list[str]:
        return [f"{each.swap.target}: {each.failure}" for each in self.outcomes if each.failure]

    def lines(self) -> list[str]:
        """Return the outcomes in words."""
        return [line for each in self.outcomes for line in each.lines()]

    def as_settings(self) -> dict[str, Any]:
        """Return the swaps as settings of a run."""
        return {"swap": ", ".join(f"{each.swap.target}={each.swap.text}" for each in self.outcomes)}


def read_report(folder: Path, swaps: Sequence[Swap]) -> SwapReport:
    """Merge the reports of all processes."""
    outcomes = {swap.target: SwapOutcome(swap=swap) for swap in swaps}
    report = SwapReport(list(outcomes.values()))
    for lines, counters in read_parts(folder):
        report.processes += 1
        extra = 0.0
        for said in lines:
            if (outcome := outcomes.get(said.get("wrapped", said.get("target", "")))) is not None:
                _add(outcome, said, counters)
                extra += said.get("extra_ms", 0.0)
        report.extra_ms = max(report.extra_ms, extra)
    return report


def _add(outcome: SwapOutcome, said: dict[str, Any], counters: Sequence[int]) -> None:
    """Add one line of a process to the outcome of its swap."""
    if "slot" in said:
        count = counters[said["slot"]]
        outcome.calls[said["outcome"]] += count
        if count and said["reason"]:
            outcome.reasons[said["reason"]] += count
    outcome.is_found |= "wrapped" in said
    outcome.binding = said.get("binding", outcome.binding)
    if said.get("check"):
        outcome.checks.append(said["check"])
    if "mismatch" in said:
        outcome.faults.append(f"results differ: {said['mismatch']} (called with {said['call']})")
    if "raised" in said:
        outcome.faults.append(f"the candidate raised {said['raised']}")
    if "failed" in said:
        outcome.problems.append(f"the candidate cannot be loaded: {said['failed']}")
    if "problem" in said:
        outcome.problems.append(said["problem"])
