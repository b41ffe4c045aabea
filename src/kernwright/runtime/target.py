"""Target: what a native library is built for, and whether this machine can build it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kernwright.core.errors import KernwrightError

CUDA_HOME = Path("/usr/local/cuda")


@dataclass(frozen=True)
class Target:
    """What a library runs on: an NVIDIA architecture as `sm_90`, or `cpu`, which is this machine's processor; and the
    kind of machine that the program around it runs on."""

    name: str
    host: str = field(default_factory=platform.machine)

    @classmethod
    def named(cls, name: str, host: str | None = None) -> Target:
        if name != "cpu" and not re.fullmatch(r"sm_\d{2,3}", name):
            raise KernwrightError(f"{name!r} is no architecture", "name one as sm_75, sm_80, sm_90 or sm_100, or cpu")
        target = cls(name, host or platform.machine())
        if target.is_elsewhere and not target.is_cuda:
            raise KernwrightError("kernels for a processor are built on a machine that has it", "build for cpu there")
        return target

    @property
    def is_elsewhere(self) -> bool:
        """Whether this is another kind of machine than the one that it is for."""
        return self.host != platform.machine()

    @property
    def is_cuda(self) -> bool:
        return self.name.startswith("sm_")

    @property
    def machine(self) -> str:
        """Host code runs on machines of one kind; CPU kernels use all that this very processor can do."""
        return self.host if self.is_cuda else f"{self.host} {_processor_features()}"

    @property
    def missing(self) -> str | None:
        """The tool that a build for it would need and that is not here."""
        if self.is_elsewhere and compiler_for(self.host) is None:
            return f"there is no C++ compiler for {self.host} ({_cross(self.host)})"
        if compiler() is None:
            return "there is no C++ compiler"
        return "there is no nvcc" if self.is_cuda and nvcc() is None else None


@cache
def compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "c++"))


@cache
def compiler_for(host: str) -> str | None:
    """For machines of another kind."""
    return shutil.which(_cross(host))


def _cross(host: str) -> str:
    return f"{host}-linux-gnu-g++"


@cache
def nvcc() -> str | None:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), str(CUDA_HOME)]
    found = (shutil.which("nvcc", path=str(Path(home, "bin"))) for home in homes if home)
    return shutil.which("nvcc") or next((path for path in found if path), None)


@cache
def _processor_features() -> str:
    """What -march=native looks at, in short. Without a list of features the processor's name must do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return hashlib.sha256(platform.processor().encode()).hexdigest()[:16]
    wanted = ("flags", "features", "cpu part", "cpu implementer", "model name")
    seen = sorted({line for line in lines if line.lower().startswith(wanted)})
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]
