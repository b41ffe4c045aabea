"""Baseline: the thing to beat, called in the same style as the candidate."""

from __future__ import annotations

import ast
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernwright.baselines.lock import read_lock
from kernwright.baselines.published import PublishedBaseline
from kernwright.core.digest import Source, code_digest, digest_of
from kernwright.core.errors import KernwrightError
from kernwright.packages.tree import Machine
from kernwright.tasks.task import Task

BUILT_IN = ("eager", "compile")


class Baseline(BaseModel):
    """`eager` and `compile` run the op's own reference; an adapter is a function in the task's baselines.py; a package
    is published and pinned in the lock file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Literal["eager", "compile", "adapter", "package"]
    package: str
    version: str
    wheel_sha256: str | None = None
    adapter_sha256: str | None = None
    companions: dict[str, str] = Field(
        default_factory=dict, description="wheels that a package runs with, and their hashes"
    )

    @property
    def digest(self) -> str:
        """Of what the baseline is made of. Without companions it is what it was before there were any."""
        return digest_of(self.model_dump(mode="json", exclude=None if self.companions else {"companions"}))


@dataclass(frozen=True)
class Surroundings:
    """What a baseline takes from where it runs: torch, and whom native wheels are for."""

    torch: str
    machine: Machine

    @classmethod
    def here(cls) -> Surroundings:
        return cls(_version("torch"), Machine.this())

    @classmethod
    def recorded(cls, provenance: Mapping[str, Any]) -> Surroundings:
        """Those of a verdict: it is read on other machines than the one that it was made on."""
        libraries, here = provenance["libraries"], Machine.this()
        architecture = provenance["hardware"].get("architecture", here.architecture)
        python = ".".join(libraries.get("python", here.python).split(".")[:2])
        return cls(libraries.get("torch") or _version("torch"), Machine(architecture=architecture, python=python))


def find_baseline(task: Task, name: str, where: Surroundings | None = None) -> Baseline:
    """`where`: as it would be there; else here."""
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
    raise KernwrightError(f"task {task.name} has no baseline {name!r}", f"use one of: {', '.join(known)}")


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


def adapter_names(path: Path | None) -> list[str]:
    """The public functions of a task's baselines.py, read without importing it."""
    if path is None:
        return []
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise KernwrightError(f"{path}: is not valid Python: {error}", "mend the adapters") from None
    return [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]


def _version(package: str) -> str:
    return importlib.metadata.version(package)
