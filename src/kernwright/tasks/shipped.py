"""Shipped: the ops of this very package in a candidate's place. The judge reads their sources and never runs them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

import kernwright
from kernwright.core.digest import Source, code_digest
from kernwright.core.registry import shipped_ops
from kernwright.ops import FAMILIES
from kernwright.runtime.tuning import shipped_configurations
from kernwright.tasks.baseline import Baseline, find_baseline
from kernwright.tasks.task import Task

SHIPPED = "kernwright"
PACKAGE = Path(kernwright.__file__).resolve().parent
# What a call runs through before it meets its family: the public lookup, and headers that no import names.
ON_EVERY_WAY = ("ops/catalog.py", "ops/_shared")
TABLES = "ops/tuned"
RUN_BY_CALLS = ("core", "ops", "runtime")
RUN_BY_NO_CALL = ("digest", "errors", "registry")  # modules of core


@dataclass(frozen=True)
class Shipped:
    """What `kernwright.ops` runs for some ops: what a user of the package would run, public call and all."""

    ops: tuple[str, ...]
    name: ClassVar[str] = SHIPPED

    @classmethod
    def of(cls, task: Task) -> Shipped:
        """A task may bring ops of its own along, which nobody ships."""
        known = shipped_ops()
        return cls(tuple(sorted(op for op, own in task.ops.items() if op in known and own.digest == known[op].digest)))

    def only(self, ops: Iterable[str]) -> Shipped:
        wanted = set(ops)
        return Shipped(tuple(op for op in self.ops if op in wanted))

    def by_family(self) -> list[Shipped]:
        families = sorted({FAMILIES[op] for op in self.ops})
        return [self.only(op for op in self.ops if FAMILIES[op] == family) for family in families]

    @cached_property
    def sources(self) -> dict[str, bytes]:
        """By path in the package: the families' folders, kernels and host code, and all of `ops` and `runtime` that
        they import; and the configurations that these ops' Triton kernels ship with, wherever those were measured."""
        families = {FAMILIES[op] for op in self.ops}
        roots = [PACKAGE / "ops" / family for family in families] + [PACKAGE / part for part in ON_EVERY_WAY]
        found = {path.relative_to(PACKAGE).as_posix(): path.read_bytes() for path in sorted(_reached(roots))}
        measured = shipped_configurations(self.ops, PACKAGE / TABLES)
        return {**found, TABLES: measured.encode()} if measured else found

    @cached_property
    def digest(self) -> str:
        """Return the digest of the code: a changed kernel, launcher or dispatch makes records stale."""
        measured = self.sources.get(TABLES)
        facts = {} if measured is None else {"configurations": measured.decode()}
        return code_digest((Source.read(PACKAGE / name) for name in self.sources if name != TABLES), facts)


def find_contender(task: Task, name: str) -> Baseline | Shipped:
    """What stands in a candidate's place by its name."""
    return Shipped.of(task) if name == SHIPPED else find_baseline(task, name)


def _reached(roots: Iterable[Path]) -> set[Path]:
    found: set[Path] = set()
    waiting = list(roots)
    while waiting:
        path = waiting.pop()
        if path.is_dir():
            waiting += [inner for inner in path.iterdir() if inner.name != "__pycache__"]
        elif path not in found and path.is_file():
            found.add(path)
            if path.suffix == ".py":
                waiting += _imported(path)
    return found


def _imported(path: Path) -> Iterator[Path]:
    """Yield the modules of `core`, `ops` and `runtime` that a file imports. Of another family that is its whole folder:
    the sources that it compiles stand in no import."""
    for name in _named(path.read_bytes()):
        parts = name.split(".")
        if len(parts) > 2 and parts[0] == "kernwright" and parts[1] in RUN_BY_CALLS and parts[2] not in RUN_BY_NO_CALL:
            place = PACKAGE.joinpath(*parts[1:3])
            yield place if place.is_dir() else place.with_suffix(".py")


@lru_cache(maxsize=512)
def _named(source: bytes) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(dict.fromkeys(names))
