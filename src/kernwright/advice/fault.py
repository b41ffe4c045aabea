"""Fault: rows of a verdict that are incorrect, tampered or failed for the same reason."""

from __future__ import annotations

from typing import NamedTuple

from kernwright.judge.process.faults import AT
from kernwright.judge.record.verdict import Outcome, Verdict

FAULTS: tuple[Outcome, ...] = ("incorrect", "tampered", "failed")


class Fault(NamedTuple):
    """Rows that are incorrect, tampered or failed for the same reason."""

    outcome: Outcome
    reason: str  # the first row's reason; those of others may differ in sizes
    rows: list[str]


def faults_of(verdict: Verdict) -> list[Fault]:
    """Return the faults of a verdict. Errors that were raised at the same place are one fault."""
    found: dict[tuple[Outcome, str], Fault] = {}
    for row in verdict.rows:
        if row.verdict in FAULTS:
            reason = row.reasons[0] if row.reasons else "no reason was recorded"
            frames = "\n".join(line for line in reason.split("\n") if line.startswith(AT))
            found.setdefault((row.verdict, frames or reason), Fault(row.verdict, reason, [])).rows.append(row.id)
    return list(found.values())
