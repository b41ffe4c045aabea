"""Library: native sources and the shared library that is built from them, once for each target.

The name of a library contains the digest of everything that it is built from, so that a changed source gives another
library and an old one is never loaded by mistake. A library is looked up in the folders that `kernwright build` wrote
(KERNWRIGHT_BUILDS, separated as in PATH), then in the user's cache, and is built there on first use. A build runs in a
folder of its own and is moved into place when it is complete: two processes may build at the same time, and a damaged
file is noticed by its checksum and built again. A build that failed is not repeated in the same process, since every
call would wait for the compiler.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernwright.core.digest import digest_of
from kernwright.core.errors import EnvironmentProblem
from kernwright.core.runtime_interface import BUILDS_VARIABLE, checksum_file
from kernwright.runtime.target import Target
from kernwright.runtime.toolchain import crossing_flags, environment_for, runtime_flags, stand_ins

CACHE_VARIABLE = "KERNWRIGHT_CACHE"
CPU_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp")
HOST_FLAGS = ("-O2",)
CUDA_FLAGS = ("-Xptxas=-O3",)


class NotBuilt(EnvironmentProblem):
    """A native library cannot be found, built or loaded. Nothing was launched."""

    @property
    def in_short(self) -> str:
        """Return the error in one line, with the first message of the compiler."""
        return f"{' '.join(self.cause.splitlines()[:2])} ({self.remedy})"


@dataclass(frozen=True)
class Library:
    """The sources of a native library, its headers included, and the macros that it is compiled with."""

    name: str
    sources: tuple[Path, ...]
    macros: tuple[tuple[str, str], ...] = ()

    def file_name(self, target: Target) -> str:
        """Return the name of the file that this library has for a target."""
        return f"{self.name}-{target.name}-{self.digest(target)[:24]}.so"

    def digest(self, target: Target) -> str:
        """Return the digest of sources, macros, flags, target and tvm-ffi."""
        return _digest(self, target)

    def find(self, target: Target) -> Path | None:
        """Return the path of an intact library built for this target, or None."""
        return next((path for folder in _folders() if (path := self.found_in(folder, target))), None)

    def found_in(self, folder: Path, target: Target) -> Path | None:
        """Return the path of an intact library in one folder, or None."""
        path = folder / self.file_name(target)
        return path if is_whole(path) else None

    def unavailable(self, target: Target) -> str | None:
        """Return why the library can neither be found nor built here, or None. Raise NotBuilt if a build has failed."""
        self._refuse_again(target)
        missing = target.missing
        if missing is None or self.find(target):
            return None
        return f"{missing}, and {self.name} was not built ahead for {target.name}"

    def need(self, target: Target) -> Path:
        """Find the library or build it into the user's cache. Raise NotBuilt if that failed, also on later calls."""
        if found := self.find(target):
            return found
        self._refuse_again(target)
        if folder := next((own for own in _ahead() if any(own.glob(f"{self.name}-{target.name}-*.so"))), None):
            warnings.warn(  # the same text for every library, so that Python shows it once
                f"the libraries in {folder} for {target.name} do not match and are built again: they were built from "
                f"other sources, for another kind of machine than {target.host} (kernwright build --machine), or with "
                "another version of apache-tvm-ffi",
                stacklevel=2,
            )
        try:
            return self.build(target, cache_folder())
        except EnvironmentProblem as problem:
            raise self._failed(target, problem.cause, problem.remedy) from problem

    def _failed(self, target: Target, cause: str, remedy: str) -> NotBuilt:
        _failures[self, target, _folders()] = cause, remedy
        return NotBuilt(cause, remedy)

    def _refuse_again(self, target: Target) -> None:
        if words := _failures.get((self, target, _folders())):
            raise NotBuilt(*words)

    def build(self, target: Target, folder: Path) -> Path:
        """Build the library into a folder, and replace the one that is there."""
        if missing := target.missing:
            raise EnvironmentProblem(
                f"{self.name} cannot be built for {target.name}: {missing}",
                f"install it, or run kernwright build --arch {target.name} elsewhere and set {BUILDS_VARIABLE}",
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as scratch:
                built = Path(self._compile(target, Path(scratch)))
                whole = folder / self.file_name(target)
                checksum = Path(scratch, "checksum")
                checksum.write_text(_checksum(built), encoding="utf-8")
                # Two builds of one library may differ in their bytes: library and checksum are replaced together.
                with (folder / ".lock").open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    built.replace(whole)
                    checksum.replace(checksum_file(whole))
        except OSError as error:
            raise EnvironmentProblem(
                f"{folder} cannot be written: {error.strerror or error}",
                f"set {CACHE_VARIABLE} to a writable folder",
            ) from error
        return whole

    def load(self, target: Target) -> Any:
        """Return the module of tvm-ffi for this library, which is built if need be. Raise NotBuilt if that fails."""
        import tvm_ffi

        path = self.need(target)
        try:
            return tvm_ffi.load_module(str(path))
        except (OSError, RuntimeError) as error:
            said = str(error).strip().partition("\n")[0]
            remedy = "install what the message names, or remove the file, so that it is built again"
            raise self._failed(target, f"{path} cannot be loaded: {said}", remedy) from error

    def _compile(self, target: Target, folder: Path) -> str:
        import tvm_ffi.cpp

        macros = [f"-D{name}={value}" for name, value in self.macros]
        files = {ending: [str(f) for f in self.sources if f.suffix == ending] for ending in (".cc", ".cu")}
        host = HOST_FLAGS if target.is_cuda else CPU_FLAGS
        crossing: list[str] = []
        linking = runtime_flags() if target.is_cuda else ["-fopenmp"]
        if target.is_elsewhere:
            crossing, linking = crossing_flags(target), stand_ins(target, folder / "stand-ins")
        try:
            with environment_for(target):
                return str(
                    tvm_ffi.cpp.build(
                        name=self.name,
                        cpp_files=files[".cc"],
                        cuda_files=files[".cu"] or None,
                        extra_cflags=[*host, *macros],
                        extra_cuda_cflags=[*CUDA_FLAGS, *macros, *crossing],
                        extra_ldflags=linking,
                        extra_include_paths=include_paths(self.sources),
                        build_directory=str(folder),
                        backend="cuda" if target.is_cuda else None,
                    )
                )
        except RuntimeError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            complaints = [line for line in lines if "error" in line.lower()] or lines[-3:]
            raise EnvironmentProblem(
                f"{self.name} could not be built for {target.name}:\n" + "\n".join(complaints[:6]),
                "use a compiler for C++17, and CUDA 12 or newer for a GPU",
            ) from error


# Failed builds by library, target and folders: with other folders the library may be there, or can be written.
_failures: dict[tuple[Library, Target, tuple[Path, ...]], tuple[str, str]] = {}


def is_whole(path: Path) -> bool:
    """Return whether a library matches its checksum."""
    try:
        return checksum_file(path).read_text(encoding="utf-8") == _checksum(path)
    except OSError:
        return False


def cache_folder() -> Path:
    """Return the folder of the libraries that were built on first use."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).absolute() / "builds"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache, "kernwright", "builds").absolute()


def _ahead() -> list[Path]:
    return [Path(folder) for folder in os.environ.get(BUILDS_VARIABLE, "").split(os.pathsep) if folder]


def _folders() -> tuple[Path, ...]:
    return (*_ahead(), cache_folder())


def include_paths(sources: Sequence[Path]) -> list[str]:
    """Return the folders of all sources and their parents, since an include may name the folder of a header."""
    return sorted({str(folder) for source in sources for folder in (source.parent, source.parent.parent)})


@cache
def _digest(library: Library, target: Target) -> str:
    """Return the digest of a library. Sources are read once per process."""
    import tvm_ffi

    return digest_of(
        {
            # A list, since two families may have files of the same name.
            "sources": sorted([path.name, hashlib.sha256(path.read_bytes()).hexdigest()] for path in library.sources),
            "macros": dict(library.macros),
            "flags": [*CUDA_FLAGS, *HOST_FLAGS] if target.is_cuda else [*CPU_FLAGS],
            "target": target.name,
            "machine": target.machine,
            "tvm_ffi": tvm_ffi.__version__,
        }
    )


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
