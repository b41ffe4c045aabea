"""Results of a ledger with made-up records."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from typing import Any

from kernwright.baselines.lookup import find_baseline
from kernwright.baselines.shipped import Shipped
from kernwright.judge.record.verdict import MetricResult, RowVerdict, Verdict
from kernwright.report.field.field import Standing
from kernwright.report.results.results import Results
from kernwright.tasks.catalog import find_task
from kernwright.tasks.policy import METRICS
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload


def metric(ratio: float, us: float, spread: float = 0.01) -> MetricResult:
    interval = (ratio * (1 - spread), ratio * (1 + spread))
    return MetricResult(
        ratio=ratio, interval=interval, noise_band=0.01, baseline_us=ratio * us, candidate_us=us, quads=8,
        outcome="same",
    )  # fmt: skip


@lru_cache
def known_task(name: str) -> Task:
    return find_task(name)


H200 = {"kind": "cuda", "model": "NVIDIA H200"}


class MadeResults:
    """Results of some tasks, from made-up records."""

    def __init__(self, *names: str) -> None:
        self.tasks = [known_task(name) for name in names]
        self.standings: dict[tuple[str, str, str], Standing] = {}

    @property
    def results(self) -> Results:
        return Results(tasks=self.tasks, device="cuda", rows="production", standings=dict(self.standings))

    @staticmethod
    @lru_cache
    def run(task: str, baseline: str) -> Verdict:
        digests = {
            "candidate_digest": Shipped(()).digest,
            "baseline_digest": find_baseline(known_task(task), baseline).digest,
        }
        about = {"hardware": H200, "libraries": {"torch": version("torch")}, "finished": "today"}
        return Verdict.model_construct(task=task, baseline=baseline, rows=(), provenance=about, **digests)

    def rows(self, *ops: str) -> list[tuple[Task, Workload]]:
        return [(task, row) for task in self.tasks for row in task.select("production") if row.op in ops]

    def add(self, task: Task, row: Workload, baseline: str, fastest_copy_us: float = 10.0, **more: Any) -> None:
        own: dict[str, Any] = {
            "verdict": "same",
            "cases": 3,
            "fastest_copy_us": fastest_copy_us,
            "bytes_min": row.bytes_min,
            **more,
        }
        verdict = RowVerdict(id=row.id, op=row.op, **own)
        self.standings[task.name, row.id, baseline] = Standing(verdict, self.run(task.name, baseline))

    def fill(self, *baselines: str, **more: Any) -> None:
        """Add every production row that has no standing yet."""
        given = {"metrics": {name: metric(1.2, 30.0) for name in METRICS}, **more}
        for task in self.tasks:
            for row in task.select("production"):
                for baseline in baselines:
                    if (task.name, row.id, baseline) not in self.standings:
                        self.add(task, row, baseline, **given)
