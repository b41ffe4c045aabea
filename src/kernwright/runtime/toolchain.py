"""Toolchain: the flags and the environment that compilers need here, for this kind of machine and for others."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem
from kernwright.runtime.target import Target, compiler_for, nvcc

ARCHITECTURE_VARIABLE = "TVM_FFI_CUDA_ARCH_LIST"


@cache
def _toolkits() -> list[Path]:
    """Return the folders of the CUDA toolkit, as nvcc reports them: nvcc itself may be a script elsewhere."""
    told = subprocess.run([str(nvcc()), "--dryrun", "none.cu"], capture_output=True, text=True, check=False)
    return [Path(line.removeprefix("#$ TOP=")) for line in told.stderr.splitlines() if line.startswith("#$ TOP=")]


@cache
def _runtimes() -> list[Path]:
    return [found for top in _toolkits() for found in sorted(top.glob("**/lib*/libcudart.so"))]


def runtime_flags() -> list[str]:
    """Return the linker flags for the CUDA runtime."""
    folders = [str(found.parent) for found in _runtimes()]
    return [flag for folder in folders for flag in (f"-L{folder}", f"-Wl,-rpath,{folder}")]


def crossing_flags(target: Target) -> list[str]:
    """Return the flags of a build for another kind of machine, for which nvcc does not find its headers by itself."""
    headers = [str(top / "include") for top in _toolkits() if (top / "include").is_dir()]
    return ["-ccbin", str(compiler_for(target.host)), *(f"-I{folder}" for folder in headers)]


def stand_ins(target: Target, folder: Path) -> list[str]:
    """Write empty libraries to link against, and return the linker flags.

    The real libraries are not here for that kind of machine. The linker needs only their names: on the machine itself
    torch has loaded them before.
    """
    folder.mkdir()
    releases = [path.name for found in _runtimes() for path in found.parent.glob("libcudart.so.*")]
    runtime = min(
        releases, key=len, default="libcudart.so"
    )  # the shortest has only the major version, as in its soname
    names = {"libtvm_ffi.so": "libtvm_ffi.so", "libcudart.so": runtime}
    for file, name in names.items():
        command = [str(compiler_for(target.host)), "-shared", f"-Wl,-soname,{name}", "-x", "c", "/dev/null"]
        done = subprocess.run([*command, "-o", str(folder / file)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentProblem(
                f"{compiler_for(target.host)} cannot link a library: {done.stderr.strip()[-300:]}",
                "repair that compiler",
            )
    return [f"-L{folder}", "-Wl,--no-as-needed", "-ltvm_ffi", "-lcudart"]  # empty libraries would be dropped


class _Surroundings:
    """The environment variables that tvm-ffi reads the architecture and the compiler from.

    All threads share the environment. Builds with the same values run side by side; others wait until they have ended.
    """

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._builds = 0
        self._values: dict[str, str] = {}
        self._before: dict[str, str | None] = {}

    def begin(self, values: dict[str, str]) -> None:
        """Set the variables. Wait while builds with other values run."""
        with self._turn:
            self._turn.wait_for(lambda: self._builds == 0 or self._values == values)
            if self._builds == 0:
                self._values, self._before = values, {name: os.environ.get(name) for name in values}
                os.environ.update(values)
            self._builds += 1

    def end(self) -> None:
        """Restore the variables when the last build has ended."""
        with self._turn:
            self._builds -= 1
            if self._builds:
                return
            for name, before in self._before.items():
                if before is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = before
            self._turn.notify_all()


_surroundings = _Surroundings()


@contextmanager
def environment_for(target: Target) -> Iterator[None]:
    """Set the environment that a build for a target needs."""
    if not target.is_cuda:
        yield
        return
    digits = target.name.removeprefix("sm_")
    values = {ARCHITECTURE_VARIABLE: f"{digits[:-1]}.{digits[-1]}"}
    if target.is_elsewhere:
        values["CXX"] = str(compiler_for(target.host))
    _surroundings.begin(values)
    try:
        yield
    finally:
        _surroundings.end()
