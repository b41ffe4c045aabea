"""Tree: wheels unpacked together into one folder.

The digest of a tree covers the files that are kept, so that a copy can be checked on a machine that never had the
wheels.
"""

from __future__ import annotations

import platform
import re
import sys
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kernwright.packages.pin import Pin
from kernwright.packages.wheel_target import WheelTarget, make_target

GLIBC = "manylinux_2_34"  # the newest glibc that one of the pinned wheels requires

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Machine(BaseModel):
    """The processor architecture and the Python version that a native wheel is for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str
    python: str

    @classmethod
    def this(cls) -> Machine:
        """Return the machine that this process runs on."""
        return cls(architecture=platform.machine(), python=f"{sys.version_info.major}.{sys.version_info.minor}")

    @classmethod
    def of(cls, target: WheelTarget) -> Machine:
        """Return the machine of a wheel target."""
        found = re.search(r"_(x86_64|[a-z0-9]+)$", target.platforms[0])
        return cls(architecture=found[1] if found else "", python=target.python)

    def __str__(self) -> str:
        return f"Python {self.python} on {self.architecture}"


class Wheel(BaseModel):
    """A wheel by its file name and its hash."""

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
    """Wheels unpacked into one folder, without the files that no kernel reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    wheels: tuple[Wheel, ...] = Field(min_length=1)
    machine: Machine | None = Field(default=None, description="None if no file of the tree is native")
    keep: tuple[str, ...] = Field(default=("*",), description="patterns of the files that are unpacked")
    leave: tuple[str, ...] = Field(default=(), description="patterns of files that are left out although they match")
    paths: tuple[str, ...] = Field(default=(".",), description="folders of the tree for sys.path")
    digest: Sha256 = Field(description="over names and content of the kept files")
    bytes: int = Field(description="of the kept files")

    @property
    def target(self) -> WheelTarget:
        """Return the target to download wheels for. A tree without native files may still come from a native wheel."""
        own = self.machine or Machine(architecture="x86_64", python="3.12")
        return make_target(own.python, [f"{GLIBC}_{own.architecture}"])

    def __str__(self) -> str:
        first = self.wheels[0]
        return f"{first.name} {first.version}"
