"""Baseline: the thing to beat, called in the same style as the candidate."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from kernwright.errors import KernwrightError
from kernwright.tasks.digest import digest_of
from kernwright.tasks.task import Task

BUILT_IN = ("eager", "compile")


class Baseline(BaseModel):
    """`eager` and `compile` run the op's own reference; an adapter is a function in the task's baselines.py."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Literal["eager", "compile", "adapter"]
    package: str
    version: str
    wheel_sha256: str | None = None
    adapter_sha256: str | None = None

    @property
    def digest(self) -> str:
        return digest_of(self.model_dump(mode="json"))


def find_baseline(task: Task, name: str) -> Baseline:
    if name == "eager":
        return Baseline(name=name, kind="eager", package="torch", version=_version("torch"))
    if name == "compile":
        return Baseline(name=name, kind="compile", package="torch", version=_version("torch"))
    adapters = adapter_names(task.adapters)
    if name in adapters and task.adapters is not None:
        source = hashlib.sha256(task.adapters.read_bytes()).hexdigest()
        return Baseline(name=name, kind="adapter", package="task", version=task.name, adapter_sha256=source)
    raise KernwrightError(
        f"task {task.name} has no baseline {name!r}", f"use one of: {', '.join([*BUILT_IN, *adapters])}"
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
