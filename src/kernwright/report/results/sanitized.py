"""Sanitized: the findings of compute-sanitizer on the ops that ship, by row, for their present sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernwright.baselines.shipped import Shipped
from kernwright.report.markdown import escaped
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

ASKED_TOOLS = ("memcheck", "racecheck")


@dataclass(frozen=True)
class Watched:
    """The finding of one tool on one row."""

    outcome: str
    reason: str
    calls: int  # completed calls, at the row's size and at the odd sizes next to it


@dataclass
class Sanitized:
    """The newest finding by task, row and tool."""

    rows: dict[tuple[str, str, str], Watched] = field(default_factory=dict)
    _digests: dict[tuple[str, ...], str] = field(default_factory=dict)
    _newest: dict[tuple[str, str, str], str] = field(default_factory=dict)  # the newest run, of any sources
    _counted: dict[tuple[str, str, str], str] = field(default_factory=dict)  # the run that `rows` is from

    @property
    def recorded_in(self) -> set[str]:
        """The ledger's runs with the newest finding on each row, of the present sources and of any."""
        return {*self._newest.values(), *self._counted.values()}

    def add(self, body: Mapping[str, Any], task: Task, run: str = "") -> None:
        """Take in a record, older ones first. A record of another task or of other sources counts for no row."""
        keys = [(task.name, row, finding["tool"]) for finding in body["findings"] for row in body["rows"]]
        self._newest |= dict.fromkeys(keys, run)
        if body["task_digest"] != task.digest or body["candidate_digest"] != self._digest_of(
            tuple(body.get("ops", ()))
        ):
            return
        self._counted |= dict.fromkeys(keys, run)
        for finding in body["findings"]:
            for row in body["rows"]:
                calls = sum(call.split(" ")[0] == row for call in finding["calls"])
                own = Watched(finding["outcome"], finding["reason"], calls)
                if not calls and own.outcome == "clean":
                    own = Watched("failed", "no call of the row completed", 0)
                self.rows[task.name, row, finding["tool"]] = own

    def _digest_of(self, ops: tuple[str, ...]) -> str:
        if ops not in self._digests:
            self._digests[ops] = Shipped(ops).digest if ops else ""
        return self._digests[ops]

    def table(self, tasks: Sequence[Task]) -> list[str]:
        """Return the table of a page: one line per family."""
        lines = [f"| family | rows | {' | '.join(ASKED_TOOLS)} |", f"|---|---|{'---|' * len(ASKED_TOOLS)}"]
        for task in tasks:
            ops = Shipped.of(task).ops
            rows = [row for row in task.rows if row.set == "smoke" and row.op in ops]
            cells = [self._told(task, rows, tool) for tool in ASKED_TOOLS]
            lines.append(f"| {task.name} | {len(rows)} | {' | '.join(cells)} |")
        return lines

    def _told(self, task: Task, rows: Sequence[Workload], tool: str) -> str:
        seen = [own for row in rows if (own := self.rows.get((task.name, row.id, tool)))]
        clean = [own for own in seen if own.outcome == "clean"]
        told = f"clean: {len(clean)}, {sum(own.calls for own in clean)} calls" if clean else ""
        wrong = sorted({f"**{own.outcome}**: {escaped(own.reason)}" for own in seen if own.outcome != "clean"})
        missing = [f"not run: {len(rows) - len(seen)}"] if len(seen) < len(rows) else []
        return "; ".join(filter(None, [told, *wrong, *missing]))
