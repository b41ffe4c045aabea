"""Shipped: the ops of this package as a contender. The judge reads their sources, and only a worker runs them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

from kernwright.core.digest import Source, code_digest
from kernwright.core.registry import shipped_families, shipped_ops
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.task import Task

PACKAGE = Path(__file__).resolve().parents[1]
# Every call runs the public lookup, and every kernel may include these headers, which no import names.
ALWAYS_RUN = ("ops/catalog.py", "ops/_shared")
TABLES = "ops/tuned"
SITUATION = ("op", "width", "element_bytes", "tokens")  # the fields of a tuned entry that a launch is looked up by
CONFIGURATION = ("rows", "block", "warps")  # the fields that a launch uses; the others describe the measurement
RUN_BY_CALLS = ("core", "ops", "runtime")
RUN_BY_NO_CALL = ("digest", "errors", "registry")  # modules of core


@dataclass(frozen=True)
class Shipped:
    """Ops of `kernwright.ops`, run as a user of the package runs them, through the public call."""

    ops: tuple[str, ...]
    name: ClassVar[str] = SHIPPED

    @classmethod
    def of(cls, task: Task) -> Shipped:
        """Return the ops of a task that ship. A task may define other ops, or define one of ours differently."""
        known = shipped_ops()
        return cls(tuple(sorted(op for op, own in task.ops.items() if op in known and own.digest == known[op].digest)))

    def only(self, ops: Iterable[str]) -> Shipped:
        """Return those of these ops that are among `ops`."""
        wanted = set(ops)
        return Shipped(tuple(op for op in self.ops if op in wanted))

    def by_family(self) -> list[Shipped]:
        """Return these ops, split by family."""
        family_of = shipped_families()
        families = sorted({family_of[op] for op in self.ops})
        return [self.only(op for op in self.ops if family_of[op] == family) for family in families]

    @cached_property
    def sources(self) -> dict[str, bytes]:
        """Return everything that a call of these ops may run, by path in the package.

        These are the folders of the families, all of `core`, `ops` and `runtime` that they import, and the
        configurations that ship for their Triton kernels.
        """
        families = {shipped_families()[op] for op in self.ops}
        roots = [PACKAGE / "ops" / family for family in families] + [PACKAGE / part for part in ALWAYS_RUN]
        found = {path.relative_to(PACKAGE).as_posix(): path.read_bytes() for path in sorted(_reached(roots))}
        measured = _configurations(found)
        return {**found, TABLES: measured.encode()} if measured else found

    @cached_property
    def digest(self) -> str:
        """Return the digest of the code: a changed kernel, launcher or dispatch makes records stale."""
        facts = {"ops": list(self.ops), "configurations": self.sources.get(TABLES, b"").decode()}
        return code_digest((Source.read(PACKAGE / name) for name in self.sources if name != TABLES), facts)


def _configurations(sources: Iterable[str]) -> str:
    """Return the tuned configurations, on any GPU, of all ops whose families are among the sources."""
    family_of = shipped_families()
    families = {name.split("/")[1] for name in sources if name.startswith("ops/")}
    lines = []
    for path in sorted((PACKAGE / TABLES).glob("*.json")):
        for entry in json.loads(path.read_text(encoding="utf-8"))["entries"]:
            if family_of.get(entry["op"]) in families:
                lines.append(" ".join([path.stem, *(str(entry[field]) for field in (*SITUATION, *CONFIGURATION))]))
    return "\n".join(lines)


def _reached(roots: Iterable[Path]) -> set[Path]:
    found: set[Path] = set()
    seen: set[Path] = set()  # files and folders; most folders are imported from many files
    waiting = list(roots)
    while waiting:
        if (path := waiting.pop()) in seen:
            continue
        seen.add(path)
        if path.is_dir():
            waiting += [inner for inner in path.iterdir() if inner.name != "__pycache__"]
        elif path.is_file():
            found.add(path)
            if path.suffix == ".py":
                waiting += _imported(path)
    return found


def _imported(path: Path) -> Iterator[Path]:
    """Yield the modules of `core`, `ops` and `runtime` that a file imports.

    Of another family this is the whole folder, because the sources that it compiles are not imported.
    """
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
