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
    """The hardware that a library runs on.

    `name` is an NVIDIA architecture such as `sm_90`, or `cpu` for the processor of this machine. `host` is the kind of
    machine that the program runs on, such as `x86_64`.
    """

    name: str
    host: str = field(default_factory=platform.machine)

    @classmethod
    def named(cls, name: str, host: str | None = None) -> Target:
        """Return the target of a name that a user gave. Raise KernwrightError if it is wrong."""
        if name != "cpu" and not re.fullmatch(r"sm_\d{2,3}", name):
            raise KernwrightError(
                f"{name!r} is not an architecture", "use cpu, or a name such as sm_80, sm_90 or sm_100"
            )
        target = cls(name, host or platform.machine())
        if target.is_elsewhere and not target.is_cuda:
            raise KernwrightError(
                f"CPU kernels cannot be built for {target.host} on {platform.machine()}", "build them on such a machine"
            )
        return target

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the library is for another kind of machine than this one."""
        return self.host != platform.machine()

    @property
    def is_cuda(self) -> bool:
        """Return whether this is a GPU."""
        return self.name.startswith("sm_")

    @property
    def machine(self) -> str:
        """Return the machines that a library runs on: those of one kind, or for CPU kernels this processor model."""
        return self.host if self.is_cuda else f"{self.host} {_processor_features()}"

    @property
    def missing(self) -> str | None:
        """Return the tool that a build needs and that is missing here, or None."""
        if self.is_elsewhere and compiler_for(self.host) is None:
            return f"there is no C++ compiler for {self.host} ({_cross(self.host)})"
        if compiler() is None:
            return "there is no C++ compiler"
        return "there is no nvcc" if self.is_cuda and nvcc() is None else None


@cache
def compiler() -> str | None:
    """Return the C++ compiler of this machine, or None."""
    return shutil.which(os.environ.get("CXX", "c++"))


@cache
def compiler_for(host: str) -> str | None:
    """Return the C++ cross compiler for another kind of machine, or None."""
    return shutil.which(_cross(host))


def _cross(host: str) -> str:
    return f"{host}-linux-gnu-g++"


@cache
def nvcc() -> str | None:
    """Return the CUDA compiler of this machine, or None."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), str(CUDA_HOME)]
    found = (shutil.which("nvcc", path=str(Path(home, "bin"))) for home in homes if home)
    return shutil.which("nvcc") or next((path for path in found if path), None)


@cache
def _processor_features() -> str:
    """Return a hash of the processor's features, which -march=native uses; without /proc/cpuinfo, of its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return hashlib.sha256(platform.processor().encode()).hexdigest()[:16]
    wanted = ("flags", "features", "cpu part", "cpu implementer", "model name")
    seen = sorted({line for line in lines if line.lower().startswith(wanted)})
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]
