"""Contestant: what one side of a judgement runs, and how far it is trusted.

A candidate and the shipped ops are always contenders. A baseline can take either role.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kernwright.baselines.adapter import Capability
from kernwright.baselines.published import PublishedBaseline
from kernwright.baselines.shipped import Shipped
from kernwright.tasks.baseline import Baseline
from kernwright.tasks.candidate import Candidate
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

COMPILED = "triton_"  # prefix of Inductor's kernel names on a GPU
NATIVE = "kernwright"  # namespace of the shipped CUDA kernels, part of mangled names too
FOREIGN = ("at::", "Memcpy", "Memset")  # parts of names that no Triton kernel has


@dataclass(frozen=True)
class Contestant:
    """One contestant.

    Trusted code may round differently, and a published package may decline rows. Everything but eager must launch its
    own kernels. The shipped ops are trusted no more than any candidate.
    """

    name: str
    digest: str
    baseline: Baseline | None
    shipped: Shipped | None = None

    @classmethod
    def of_baseline(cls, baseline: Baseline) -> Contestant:
        return cls(baseline.name, baseline.digest, baseline)

    @classmethod
    def of_candidate(cls, candidate: Candidate) -> Contestant:
        return cls(candidate.name, candidate.digest, None)

    @classmethod
    def of_contender(cls, contender: Baseline | Shipped) -> Contestant:
        if isinstance(contender, Baseline):
            return cls.of_baseline(contender)
        return cls(contender.name, contender.digest, None, contender)

    def digest_for(self, ops: Collection[str]) -> str:
        """Return the digest for the record. For shipped ops it covers only the ops with rows."""
        if self.shipped is None or {*self.shipped.ops} <= {*ops}:
            return self.digest
        return self.shipped.only(ops).digest

    @property
    def trusted(self) -> bool:
        return self.baseline is not None

    @property
    def at_frozen_sizes(self) -> bool:
        """Return whether it is checked at the frozen sizes only.

        Other sizes may be declined, or compile for a long time.
        """
        return self.baseline is not None and self.baseline.kind in ("compile", "package")

    @property
    def published(self) -> PublishedBaseline | None:
        if self.baseline is None or self.baseline.kind != "package":
            return None
        return PublishedBaseline.find(self.baseline.name)

    def declines(self, task: Task, row: Workload, capability: Capability | None) -> str | None:
        """Return why it does not run a row; None if it does."""
        return self.published.declines(task.op_of(row), row, capability) if self.published else None

    def ran_else(self, op: str, names: Sequence[str] | None, backend: str | None = None) -> str | None:
        """Return why the launched kernels are not its own; None if they are. `backend` is the reported backend."""
        if self.published:
            return self.published.ran_else(op, names)
        if self.shipped and names is not None and backend in ("cuda", "triton"):
            is_own = any(_is_own(name, backend) for name in names)
            return None if is_own else f"reported backend {backend}, but launched {_shown(names)}"
        if self.baseline is None or self.baseline.kind != "compile" or names is None:
            return None
        if any(name.startswith(COMPILED) for name in names):
            return None
        return f"ran {_shown(names)} instead of a kernel that torch.compile made"

    def ops(self, task: Task, rows: Sequence[Workload], capability: Capability | None) -> list[str]:
        """Return the ops of the rows that a published package does not decline."""
        if self.published is None:
            return []
        return list(dict.fromkeys(row.op for row in rows if self.declines(task, row, capability) is None))

    def about(self, ops: Sequence[str]) -> dict[str, Any]:
        """Return the origin of a published package's kernels, for the record."""
        return self.published.about(ops) if self.published else {}


def _is_own(name: str, backend: str) -> bool:
    return NATIVE in name if backend == "cuda" else not any(word in name for word in FOREIGN)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(name[:80] for name in names[:3]) or "nothing"
