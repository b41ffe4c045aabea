"""Hotspot: GPU work of one kind, with its share of the time and the known fast path that would remove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kernwright.diagnose.catalogue.fast_path import FastPath
from kernwright.diagnose.category import Category
from kernwright.diagnose.hotspots.gpu_work import GpuWork, WorkKind

Status = Literal["covered, off", "covered, on", "partly", "in flight", "new"]


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The relation of a hotspot to the catalogue.

    Attributes:
        status: `covered, off`: a fast path exists and does not run. `covered, on`: it runs. `partly`: it takes a part
            of the work, or a faster one exists. `in flight`: only unfinished work covers it. `new`: nothing does.
        reason: the reason for the status, in one sentence.
        paths: the fast paths that the status rests on, best first.
    """

    status: Status
    reason: str
    paths: tuple[FastPath, ...] = ()

    @property
    def path(self) -> FastPath | None:
        """The best fast path."""
        return self.paths[0] if self.paths else None


@dataclass(frozen=True, kw_only=True)
class Saving:
    """GPU time that a fast path would remove, as predicted from the trace.

    Attributes:
        us: the expected time.
        low_us, high_us: the range that the time lies in if the assumptions hold.
        basis: the assumptions and data of the prediction.
    """

    us: float
    low_us: float
    high_us: float
    basis: str


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """Time and launches of one kernel within a hotspot."""

    name: str
    us: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class Hotspot:
    """GPU work of one kind.

    Attributes:
        rank: place in the order of time, from 1.
        name: the name of the chain, the operators of a run, or the shortened name of a kernel.
        kind: `chain`: operators that a known kernel replaces. `run`: operators that follow each other and that no known
            kernel replaces. `kernel`: one kernel.
        share: part of the time of all events of the GPU.
        count: how often the chain, run or kernel occurs.
        launches: events of the GPU.
        kernels: the kernels within, longest first.
        op: the operator that launched most of it.
        location: the Python code that launched most of it, as `file(line): function`.
        step_us: the time in each kind of step, by the step's name; empty if the trace names no steps.
        works: the occurrences.
    """

    rank: int
    name: str
    kind: WorkKind
    category: Category
    us: float
    share: float
    count: int
    launches: int
    kernels: tuple[KernelTime, ...]
    coverage: Coverage
    saving: Saving | None = None
    op: str | None = None
    location: str | None = None
    step_us: Mapping[str, float] = field(default_factory=dict)
    works: tuple[GpuWork, ...] = field(default=(), repr=False, compare=False)
