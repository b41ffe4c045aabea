"""Page runs: which runs of a ledger the pages use, and the reason to leave out each of the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from kernwright.judge.record.recorded import RecordedBody, recorded_bodies
from kernwright.ledger.ledger import Ledger
from kernwright.report.results.results import is_of_what_ships
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.task import Task


@dataclass
class PageRuns:
    """The runs of one page: those that it uses, and the reasons to leave out the others."""

    used: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def split(cls, ledger: Ledger, tasks: Iterable[Task], used: Collection[str]) -> dict[str, PageRuns]:
        """Sort all runs of a ledger into the field's and those of the ops that ship. ``used`` names the used runs."""
        digests = {task.name: task.digest for task in tasks}
        found = {"field": cls(), "ops": cls()}
        for run in ledger.runs():
            bodies = list(recorded_bodies(ledger, ("verdict", "sanitizer"), [run]))
            own = found["ops" if any(map(_is_of_ops, bodies)) else "field"]
            if run in used:
                own.used.append(run)
            else:
                own.left_out[run] = _reason(bodies, digests)
        return found


def _is_of_ops(record: RecordedBody) -> bool:
    return is_of_what_ships(record.body) or (record.kind == "sanitizer" and record.body.get("candidate") == SHIPPED)


def _reason(bodies: list[RecordedBody], digests: dict[str, str]) -> str:
    """Return the reason why no page uses a run."""
    if not bodies:
        return "it ended without a verdict"
    if all(own.kind == "sanitizer" for own in bodies):
        return "superseded: later runs of the sanitizer cover all of its rows"
    verdicts = [own.body for own in bodies if own.kind == "verdict"]
    if not any(body.get("evidence") for body in verdicts):
        return "its verdict is no evidence: quick, seeded, or interrupted before a row was finished"
    if all(digests.get(body["task"]) != body["task_digest"] for body in verdicts):
        return "of an earlier task digest, and its rows were judged again"
    return "superseded: later runs judged all of its rows again, or a baseline has changed since"
