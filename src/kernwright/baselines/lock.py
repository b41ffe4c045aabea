"""Lock: which published packages serve as baselines, to the byte.

A tree is what is unpacked together into one folder: one wheel, or several that share packages. Its digest is that of
the files that are kept, so that a copy can be checked on a machine that never saw the wheels.
"""

from __future__ import annotations

import platform
import re
import sys
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kernwright.bundle.pin import Pin
from kernwright.bundle.target import Target, make_target
from kernwright.core.errors import KernwrightError
from kernwright.tasks.files import read_toml

LOCK = Path(__file__).with_name("lock.toml")
GLIBC = "manylinux_2_34"  # what the newest of the pinned wheels asks for
CUTEDSL = "cutedsl"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Machine(BaseModel):
    """Whom a native wheel is for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str
    python: str

    @classmethod
    def this(cls) -> Machine:
        return cls(architecture=platform.machine(), python=f"{sys.version_info.major}.{sys.version_info.minor}")

    @classmethod
    def of(cls, target: Target) -> Machine:
        """The machine that a bundle is for."""
        found = re.search(r"_(x86_64|[a-z0-9]+)$", target.platforms[0])
        return cls(architecture=found[1] if found else "", python=target.python)

    def __str__(self) -> str:
        return f"Python {self.python} on {self.architecture}"


class Wheel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str = Field(pattern=r"^[A-Za-z0-9_.]+-[A-Za-z0-9_.!+]+-[a-z0-9_.]+-[a-z0-9_]+-[a-z0-9_.]+\.whl$")
    sha256: Sha256

    @property
    def name(self) -> str:
        return self.file.split("-")[0].replace("_", "-").lower()

    @property
    def version(self) -> str:
        return self.file.split("-")[1]

    @property
    def pin(self) -> Pin:
        return Pin(self.name, self.version, (self.sha256,))


class Tree(BaseModel):
    """Wheels unpacked into one folder, less what no kernel reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    wheels: tuple[Wheel, ...] = Field(min_length=1)
    machine: Machine | None = Field(default=None, description="None where no file of it is native")
    keep: tuple[str, ...] = Field(default=("*",), description="patterns of the files that are unpacked")
    leave: tuple[str, ...] = Field(default=(), description="patterns of files that are not, though they match")
    paths: tuple[str, ...] = Field(default=(".",), description="its folders that Python imports from")
    digest: Sha256 = Field(description="over names and content of the kept files")
    bytes: int = Field(description="of the kept files")

    @property
    def target(self) -> Target:
        """What to ask pip for. A wheel's native files may be among those that are left out."""
        own = self.machine or Machine(architecture="x86_64", python="3.12")
        return make_target(own.python, [f"{GLIBC}_{own.architecture}"])

    def __str__(self) -> str:
        first = self.wheels[0]
        return f"{first.name} {first.version}"


class Published(BaseModel):
    """A baseline by the name that `--baseline` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9-]+@[a-z0-9.]+$")
    tree: str
    needs: tuple[str, ...] = Field(default=(), description="trees that its modules import")
    adapters: str = Field(description="the module below kernwright.baselines that holds them")


class Lock(BaseModel):
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
        raise KernwrightError(f"no published baseline is called {name!r}", f"use one of: {', '.join(self.names())}")

    def tree_for(self, name: str, machine: Machine) -> Tree | None:
        """The tree of that name that runs on the machine; None where it is locked for others only."""
        fitting = [tree for tree in self.tree if tree.name == name and tree.machine in (None, machine)]
        return fitting[0] if fitting else None

    def main_tree(self, name: str) -> Tree:
        """The tree that holds a baseline's kernels, whatever the machine."""
        wanted = self.find(name).tree
        return next(tree for tree in self.tree if tree.name == wanted)


def read_lock() -> Lock:
    return _read(LOCK)


@cache
def _read(path: Path) -> Lock:
    return read_toml(path, Lock, "it is part of the package: install Kernwright again")
