"""Lock: the published packages that serve as baselines, pinned to the byte."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.packages.tree import Machine, Tree
from kernwright.tasks.files import read_toml

LOCK = Path(__file__).with_name("lock.toml")
CUTEDSL = "cutedsl"


class Published(BaseModel):
    """A baseline under the name that `--baseline` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9-]+@[a-z0-9.]+$")
    tree: str
    needs: tuple[str, ...] = Field(default=(), description="trees that its modules import")
    adapters: str = Field(description="the module of kernwright.baselines that holds its adapters")


class Lock(BaseModel):
    """The content of lock.toml: all trees, and the baselines made of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: tuple[Tree, ...]
    baseline: tuple[Published, ...]

    @model_validator(mode="after")
    def names_are_known(self) -> Lock:
        known = {tree.name for tree in self.tree}
        for baseline in self.baseline:
            if strangers := {baseline.tree, *baseline.needs} - known:
                raise ValueError(f"{baseline.name} names trees that are not locked: {sorted(strangers)}")
        return self

    def names(self) -> list[str]:
        return [baseline.name for baseline in self.baseline]

    def find(self, name: str) -> Published:
        for baseline in self.baseline:
            if baseline.name == name:
                return baseline
        remedy = did_you_mean(name, self.names(), f"use one of: {', '.join(self.names())}")
        raise KernwrightError(f"no published baseline is called {name!r}", remedy)

    def tree_for(self, name: str, machine: Machine) -> Tree | None:
        """Return the tree of that name for a machine, or None if it is locked only for other machines."""
        fitting = [tree for tree in self.tree if tree.name == name and tree.machine in (None, machine)]
        return fitting[0] if fitting else None

    def main_tree(self, name: str) -> Tree:
        """Return the tree that holds a baseline's kernels. It does not depend on the machine."""
        wanted = self.find(name).tree
        return next(tree for tree in self.tree if tree.name == wanted)


def read_lock() -> Lock:
    """Return the lock file of this package."""
    return _read(LOCK)


@cache
def _read(path: Path) -> Lock:
    return read_toml(path, Lock, "the file is part of the package: install Kernwright again")
