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
    """Where CUDA lies, by nvcc's own account: it may be a script, and its neighbours not the toolkit's."""
    told = subprocess.run([str(nvcc()), "--dryrun", "none.cu"], capture_output=True, text=True, check=False)
    return [Path(line.removeprefix("#$ TOP=")) for line in told.stderr.splitlines() if line.startswith("#$ TOP=")]


@cache
def _runtimes() -> list[Path]:
    return [found for top in _toolkits() for found in sorted(top.glob("**/lib*/libcudart.so"))]


def runtime_flags() -> list[str]:
    folders = [str(found.parent) for found in _runtimes()]
    return [flag for folder in folders for flag in (f"-L{folder}", f"-Wl,-rpath,{folder}")]


def crossing_flags(target: Target) -> list[str]:
    """nvcc by itself looks for headers in a folder that is named after the machine."""
    headers = [str(top / "include") for top in _toolkits() if (top / "include").is_dir()]
    return ["-ccbin", str(compiler_for(target.host)), *(f"-I{folder}" for folder in headers)]


def stand_ins(target: Target, folder: Path) -> list[str]:
    """The libraries that it needs are not here for that kind of machine. It must know their names; the machine has the
    rest, and its torch has loaded them by then."""
    folder.mkdir()
    releases = [path.name for found in _runtimes() for path in found.parent.glob("libcudart.so.*")]
    runtime = min(releases, key=len, default="libcudart.so")  # with the first part of its release, as it calls itself
    names = {"libtvm_ffi.so": "libtvm_ffi.so", "libcudart.so": runtime}
    for file, name in names.items():
        command = [str(compiler_for(target.host)), "-shared", f"-Wl,-soname,{name}", "-x", "c", "/dev/null"]
        done = subprocess.run([*command, "-o", str(folder / file)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentProblem(
                f"{compiler_for(target.host)} makes no library: {done.stderr.strip()[-300:]}", "mend that compiler"
            )
    return [f"-L{folder}", "-Wl,--no-as-needed", "-ltvm_ffi", "-lcudart"]  # empty, and needed all the same


class _Surroundings:
    """tvm-ffi takes the architecture and the compiler from the environment alone, which all threads share: builds for
    one may run side by side, those for another wait until they are over."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._builds = 0
        self._values: dict[str, str] = {}
        self._before: dict[str, str | None] = {}

    def begin(self, values: dict[str, str]) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._builds == 0 or self._values == values)
            if self._builds == 0:
                self._values, self._before = values, {name: os.environ.get(name) for name in values}
                os.environ.update(values)
            self._builds += 1

    def end(self) -> None:
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
