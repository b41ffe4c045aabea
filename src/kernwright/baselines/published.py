"""PublishedBaseline: a locked baseline with its adapters, and with the files that its worker needs."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernwright.baselines.adapter import Adapter, Capability, Signature, Table
from kernwright.baselines.lock import Lock, read_lock
from kernwright.core.digest import Source, code_digest
from kernwright.core.errors import EnvironmentProblem
from kernwright.packages.store import Store
from kernwright.packages.tree import Machine, Tree
from kernwright.tasks.workload import Workload

if TYPE_CHECKING:
    from kernwright.core.op import Op  # imports torch, which takes seconds

PACKAGE = "kernwright.baselines"
IN_EVERY_WORKER = ("adapter.py", "loading.py", "sglang/stand_ins.py")


@dataclass(frozen=True)
class PublishedBaseline:
    """One entry of the lock file with its adapters."""

    name: str
    lock: Lock

    @classmethod
    def find(cls, name: str) -> PublishedBaseline:
        lock = read_lock()
        lock.find(name)
        return cls(name, lock)

    @property
    def tree(self) -> Tree:
        return self.lock.main_tree(self.name)

    @cached_property
    def module(self) -> ModuleType:
        return importlib.import_module(f"{PACKAGE}.{self.lock.find(self.name).adapters}")

    @property
    def table(self) -> Table:
        return self.module.TABLE  # type: ignore[no-any-return]

    def adapter(self, op: str) -> Adapter | None:
        return self.table.adapters.get(op)

    def declines(self, op: Op, row: Workload, capability: Capability | None) -> str | None:
        """Return why the package does not run a row; None if it does. This starts no worker."""
        adapter = self.adapter(op.name)
        if adapter is None:
            return self.table.absent.get(op.name, f"{self.name} has no kernel of {op.name}")
        return adapter.declines(Signature.of(row, op.scalar_defaults, capability))

    def ran_else(self, op: str, names: Sequence[str] | None) -> str | None:
        """Return the problem with the kernels of a census; None if a kernel of the package is among them."""
        adapter = self.table.adapters[op]
        if names is None:
            return "left no census of what it ran"
        if adapter.ran(names):
            return None
        shown = ", ".join(name[:80] for name in names[:3]) or "nothing"
        return f"ran {shown} instead of {adapter.kernels}"

    def needs(self, op: str, tree: str) -> bool:
        """Return whether a kernel is one of those that take a companion of this name."""
        adapter = self.adapter(op)
        return adapter is not None and tree in adapter.needs

    def companions(self, ops: Iterable[str]) -> list[str]:
        """Names of the trees that these ops need beside the baseline's own."""
        adapters = [adapter for op in ops if (adapter := self.adapter(op))]
        wanted = [*self.lock.find(self.name).needs, *(name for adapter in adapters for name in adapter.needs)]
        return list(dict.fromkeys(wanted))

    def trees(self, ops: Iterable[str], machine: Machine) -> list[Tree]:
        """Return the trees that the store must hold, the package's own tree first."""
        found = [self.tree]
        for name in self.companions(ops):
            tree = self.lock.tree_for(name, machine)
            if tree is None:
                others = ", ".join(str(tree.machine) for tree in self.lock.tree if tree.name == name)
                raise EnvironmentProblem(
                    f"{self.name} needs {name}, which is locked for {others} and not for {machine}",
                    "use such a machine, or add its wheels to the lock file",
                )
            found.append(tree)
        return found

    def orders(self, ops: Sequence[str], store: Store) -> tuple[dict[str, Any], list[Path]]:
        """Return the worker's orders (adapters, tree, import paths) and the folders that it must be able to read."""
        trees = self.trees(ops, Machine.this())
        places = [store.need(tree) for tree in trees]
        paths = [
            str((place / path).resolve())
            for tree, place in zip(trees[1:], places[1:], strict=True)
            for path in tree.paths
        ]
        return {"adapters": self.module.__name__, "tree": str(places[0]), "paths": paths}, places

    def adapter_digest(self, ops: Iterable[str]) -> str:
        """Return the digest of all code of ours between the judge and the package's functions for these ops, and of the
        reasons why it declines the others."""
        said: dict[str, Any] = {}
        modules: list[ModuleType] = []
        for op in sorted(set(ops)):
            if (adapter := self.adapter(op)) is None:
                said[op] = self.table.absent.get(op, "")
                continue
            said[op] = [adapter.functions, adapter.file, adapter.kernels, adapter.needs, adapter.rounding]
            for function in (adapter.bind, *adapter.objections):
                modules += [own for own in _imported(sys.modules[function.__module__]) if own not in modules]
        files = {Path(own.__file__) for own in modules if own.__file__}
        files |= {Path(__file__).parent / name for name in IN_EVERY_WORKER}
        return code_digest(map(Source.read, files), said)

    def about(self, ops: Iterable[str]) -> dict[str, Any]:
        """Return the package, its wheel, and the file, functions and kernels of each op, for the record."""
        wheel = self.tree.wheels[0]
        return {
            "package": wheel.name,
            "version": wheel.version,
            "wheel": wheel.file,
            "wheel_sha256": wheel.sha256,
            "tree_sha256": self.tree.digest,
            "ops": {
                op: {"file": adapter.file, "functions": list(adapter.functions), "kernels": adapter.kernels}
                for op in ops
                if (adapter := self.adapter(op))
            },
        }


def _imported(module: ModuleType) -> list[ModuleType]:
    """Return a module of adapters and all modules of adapters that it imports, each once."""
    found = [module]
    for one in found:
        found += [
            other
            for other in vars(one).values()
            if inspect.ismodule(other) and other.__name__.startswith(PACKAGE) and other not in found
        ]
    return found
