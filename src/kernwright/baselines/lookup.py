"""Find a baseline, or another contender, by its name."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernwright.baselines.lock import read_lock
from kernwright.baselines.published import PublishedBaseline
from kernwright.baselines.shipped import Shipped
from kernwright.core.digest import Source, code_digest
from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.packages.tree import Machine
from kernwright.tasks.baseline import BUILT_IN, Baseline, adapter_names
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.task import Task


@dataclass(frozen=True)
class Surroundings:
    """Facts of a machine that a baseline's digest depends on: its torch version, and its type for native wheels."""

    torch: str
    machine: Machine

    @classmethod
    def here(cls) -> Surroundings:
        """Return the surroundings of this process."""
        return cls(_version("torch"), Machine.this())

    @classmethod
    def recorded(cls, provenance: Mapping[str, Any]) -> Surroundings:
        """Return the surroundings of a recorded verdict, which may have been made on another machine."""
        libraries, here = provenance["libraries"], Machine.this()
        architecture = provenance["hardware"].get("architecture", here.architecture)
        python = ".".join(libraries.get("python", here.python).split(".")[:2])
        return cls(libraries.get("torch") or _version("torch"), Machine(architecture=architecture, python=python))


def find_baseline(task: Task, name: str, where: Surroundings | None = None) -> Baseline:
    """Return the baseline of that name for a task.

    Args:
        where: the surroundings to resolve it for; by default those of this process.
    """
    where = where or Surroundings.here()
    if name == "eager":
        return Baseline(name=name, kind="eager", package="torch", version=where.torch)
    if name == "compile":
        return Baseline(name=name, kind="compile", package="torch", version=where.torch)
    adapters = adapter_names(task.adapters)
    if name in adapters and task.adapters is not None:
        source = code_digest([Source.read(task.adapters)])
        return Baseline(name=name, kind="adapter", package="task", version=task.name, adapter_sha256=source)
    if name in read_lock().names():
        return _published(task, name, where.machine)
    known = [*BUILT_IN, *adapters, *read_lock().names()]
    remedy = did_you_mean(name, known, f"use one of: {', '.join(known)}")
    raise KernwrightError(f"task {task.name} has no baseline {name!r}", remedy)


def _published(task: Task, name: str, machine: Machine) -> Baseline:
    published = PublishedBaseline.find(name)
    wheel = published.tree.wheels[0]
    trees = [published.lock.tree_for(tree, machine) for tree in published.companions(task.ops)]
    return Baseline(
        name=name,
        kind="package",
        package=wheel.name,
        version=wheel.version,
        wheel_sha256=wheel.sha256,
        adapter_sha256=published.adapter_digest(task.ops),
        companions={wheel.file: wheel.sha256 for tree in trees if tree for wheel in tree.wheels},
    )


def find_contender(task: Task, name: str) -> Baseline | Shipped:
    """Return the ops that ship for the name `kernwright`, else the baseline of that name."""
    return Shipped.of(task) if name == SHIPPED else find_baseline(task, name)


def _version(package: str) -> str:
    return importlib.metadata.version(package)
