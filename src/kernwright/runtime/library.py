"""Library: native sources and the shared library that is built of them, once for each target.

A library's name holds the digest of all that it is made of, so a changed source is another library and an old one is
never met by mistake. It is looked for in the folders that `kernwright build` filled (KERNWRIGHT_BUILDS, several as in
PATH), then in the user's cache, and built there on first use. A build happens in a folder of its own and is moved into
place when it is whole: two processes may build at once, and a broken file is noticed by its checksum and built anew.
What cannot be built is not tried again in a process: a compiler that takes seconds to fail would do so in every call.
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
    """A library that is needed can be neither found nor made to work here. Nothing was launched."""

    @property
    def in_short(self) -> str:
        """In one line, with the first thing that a compiler had to say."""
        return f"{' '.join(self.cause.splitlines()[:2])} ({self.remedy})"


@dataclass(frozen=True)
class Library:
    """Sources, headers among them, each found from the folders of all, and the macros that choose what is compiled."""

    name: str
    sources: tuple[Path, ...]
    macros: tuple[tuple[str, str], ...] = ()

    def file_name(self, target: Target) -> str:
        return f"{self.name}-{target.name}-{self.digest(target)[:24]}.so"

    def digest(self, target: Target) -> str:
        return _digest(self, target)

    def find(self, target: Target) -> Path | None:
        """Return the path of an intact library built for this target, or None."""
        return next((path for folder in _folders() if (path := self.found_in(folder, target))), None)

    def found_in(self, folder: Path, target: Target) -> Path | None:
        path = folder / self.file_name(target)
        return path if is_whole(path) else None

    def unavailable(self, target: Target) -> str | None:
        """Why it can be neither found nor built here; raises NotBuilt where that was tried."""
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
            warnings.warn(  # the same words for all of them: they are said once
                f"what {folder} holds for {target.name} does not fit and is built anew: it is of other sources, for "
                f"another kind of machine than {target.host}, or of another tvm-ffi (kernwright build --machine)",
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
        """Builds it into a folder, whatever lies there."""
        if missing := target.missing:
            raise EnvironmentProblem(
                f"{self.name} cannot be built for {target.name}: {missing}",
                f"install it, or build elsewhere (kernwright build --arch {target.name}) and set {BUILDS_VARIABLE}",
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as scratch:
                built = Path(self._compile(target, Path(scratch)))
                whole = folder / self.file_name(target)
                checksum = Path(scratch, "checksum")
                checksum.write_text(_checksum(built), encoding="utf-8")
                # Two builds of one library may differ in their bytes: one pair is put in place at a time.
                with (folder / ".lock").open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    built.replace(whole)
                    checksum.replace(checksum_file(whole))
        except OSError as error:
            raise EnvironmentProblem(
                f"{folder} cannot be written: {error.strerror or error}",
                f"set {CACHE_VARIABLE} to a folder that can be",
            ) from error
        return whole

    def load(self, target: Target) -> Any:
        import tvm_ffi

        path = self.need(target)
        try:
            return tvm_ffi.load_module(str(path))
        except (OSError, RuntimeError) as error:
            said = str(error).strip().partition("\n")[0]
            remedy = "install what it names; if that was there when it was built, remove the file, and it is built anew"
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
                "see that the compiler fits (C++17, and CUDA 12 or newer for a GPU)",
            ) from error


# Of a library, a target and the folders that were looked into: others may have it, or be writable.
_failures: dict[tuple[Library, Target, tuple[Path, ...]], tuple[str, str]] = {}


def is_whole(path: Path) -> bool:
    try:
        return checksum_file(path).read_text(encoding="utf-8") == _checksum(path)
    except OSError:
        return False


def cache_folder() -> Path:
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).absolute() / "builds"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache, "kernwright", "builds").absolute()


def _ahead() -> list[Path]:
    return [Path(folder) for folder in os.environ.get(BUILDS_VARIABLE, "").split(os.pathsep) if folder]


def _folders() -> tuple[Path, ...]:
    return (*_ahead(), cache_folder())


def include_paths(sources: Sequence[Path]) -> list[str]:
    """Return the folders of all sources, and those above: files of one name are told apart by their folder's."""
    return sorted({str(folder) for source in sources for folder in (source.parent, source.parent.parent)})


@cache
def _digest(library: Library, target: Target) -> str:
    """Of the sources as they are when first asked: a running program does not change its mind about them."""
    import tvm_ffi

    return digest_of(
        {
            # A list, since files of two families may have one name.
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
