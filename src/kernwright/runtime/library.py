"""Library: native sources and the shared library that is built of them, once for each target.

A library's name holds the digest of all that it is made of, so a changed source is another library and an old one is
never met by mistake. It is looked for in the folders that `kernwright build` filled (KERNWRIGHT_BUILDS, several as in
PATH), then in the user's cache, and built there on first use. A build happens in a folder of its own and is moved into
place when it is whole: two processes may build at once, and a broken file is noticed by its checksum and built anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernwright.errors import EnvironmentProblem, KernwrightError
from kernwright.tasks.digest import digest_of

BUILDS_VARIABLE, CACHE_VARIABLE = "KERNWRIGHT_BUILDS", "KERNWRIGHT_CACHE"
ARCHITECTURE_VARIABLE = "TVM_FFI_CUDA_ARCH_LIST"
CPU_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp")
HOST_FLAGS = ("-O2",)
CUDA_FLAGS = ("-Xptxas=-O3",)
CUDA_HOME = Path("/usr/local/cuda")


@dataclass(frozen=True)
class Target:
    """What a library runs on: an NVIDIA architecture as `sm_90`, or `cpu`, which is this machine's processor."""

    name: str

    @classmethod
    def named(cls, name: str) -> Target:
        if name != "cpu" and not re.fullmatch(r"sm_\d{2,3}", name):
            raise KernwrightError(f"{name!r} is no architecture", "name one as sm_75, sm_80, sm_90 or sm_100, or cpu")
        return cls(name)

    @property
    def is_cuda(self) -> bool:
        return self.name.startswith("sm_")

    @property
    def machine(self) -> str:
        """Host code runs on machines of one kind; CPU kernels use all that this very processor can do."""
        return platform.machine() if self.is_cuda else f"{platform.machine()} {_processor_features()}"

    @property
    def missing(self) -> str | None:
        """The tool that a build for it would need and that is not here."""
        if compiler() is None:
            return "there is no C++ compiler"
        return "there is no nvcc" if self.is_cuda and nvcc() is None else None


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
        """Where it lies whole, if it was built for this target before."""
        return next((path for folder in _folders() if (path := self.found_in(folder, target))), None)

    def found_in(self, folder: Path, target: Target) -> Path | None:
        path = folder / self.file_name(target)
        return path if is_whole(path) else None

    def unavailable(self, target: Target) -> str | None:
        """Why it can be neither found nor built here."""
        missing = target.missing
        if missing is None or self.find(target):
            return None
        return f"{missing}, and {self.name} was not built ahead for {target.name}"

    def need(self, target: Target) -> Path:
        """Finds it, or builds it into the user's cache."""
        return self.find(target) or self.build(target, cache_folder())

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

        return tvm_ffi.load_module(str(self.need(target)))

    def _compile(self, target: Target, folder: Path) -> str:
        import tvm_ffi.cpp

        macros = [f"-D{name}={value}" for name, value in self.macros]
        files = {ending: [str(f) for f in self.sources if f.suffix == ending] for ending in (".cc", ".cu")}
        host = HOST_FLAGS if target.is_cuda else CPU_FLAGS
        try:
            with _architecture(target):
                return str(
                    tvm_ffi.cpp.build(
                        name=self.name,
                        cpp_files=files[".cc"],
                        cuda_files=files[".cu"] or None,
                        extra_cflags=[*host, *macros],
                        extra_cuda_cflags=[*CUDA_FLAGS, *macros],
                        extra_ldflags=_runtime_flags() if target.is_cuda else ["-fopenmp"],
                        extra_include_paths=sorted({str(source.parent) for source in self.sources}),
                        build_directory=str(folder),
                        backend="cuda" if target.is_cuda else None,
                    )
                )
        except RuntimeError as error:
            complaints = [line for line in str(error).splitlines() if "error" in line.lower()] or [str(error)[-800:]]
            raise EnvironmentProblem(
                f"{self.name} could not be built for {target.name}:\n" + "\n".join(complaints[:6]),
                "see that the compiler fits (C++17, and CUDA 12 or newer for a GPU)",
            ) from error


def checksum_file(path: Path) -> Path:
    """What lies beside a library, and shows that it is whole."""
    return path.with_name(path.name + ".sha256")


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


def _folders() -> Sequence[Path]:
    ahead = os.environ.get(BUILDS_VARIABLE, "")
    return [*(Path(folder) for folder in ahead.split(os.pathsep) if folder), cache_folder()]


@cache
def _digest(library: Library, target: Target) -> str:
    """Of the sources as they are when first asked: a running program does not change its mind about them."""
    import tvm_ffi

    return digest_of(
        {
            "sources": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in library.sources},
            "macros": dict(library.macros),
            "flags": [*CUDA_FLAGS, *HOST_FLAGS] if target.is_cuda else [*CPU_FLAGS],
            "target": target.name,
            "machine": target.machine,
            "tvm_ffi": tvm_ffi.__version__,
        }
    )


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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


@cache
def compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "c++"))


@cache
def nvcc() -> str | None:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), str(CUDA_HOME)]
    found = (shutil.which("nvcc", path=str(Path(home, "bin"))) for home in homes if home)
    return shutil.which("nvcc") or next((path for path in found if path), None)


@cache
def _runtime_flags() -> list[str]:
    """Where CUDA's runtime lies, by nvcc's own account: it may be a script, and its neighbours not the toolkit's."""
    told = subprocess.run([str(nvcc()), "--dryrun", "none.cu"], capture_output=True, text=True, check=False)
    tops = [line.removeprefix("#$ TOP=") for line in told.stderr.splitlines() if line.startswith("#$ TOP=")]
    folders = [str(found.parent) for top in tops for found in sorted(Path(top).glob("**/lib*/libcudart.so"))]
    return [flag for folder in folders for flag in (f"-L{folder}", f"-Wl,-rpath,{folder}")]


class _Architectures:
    """tvm-ffi takes the architecture from the environment alone, which all threads share: builds for one may run side
    by side, those for another wait until they are over."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._builds = 0
        self._value: str | None = None
        self._before: str | None = None

    def begin(self, value: str) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._builds == 0 or self._value == value)
            if self._builds == 0:
                self._before, self._value = os.environ.get(ARCHITECTURE_VARIABLE), value
                os.environ[ARCHITECTURE_VARIABLE] = value
            self._builds += 1

    def end(self) -> None:
        with self._turn:
            self._builds -= 1
            if self._builds:
                return
            if self._before is None:
                os.environ.pop(ARCHITECTURE_VARIABLE, None)
            else:
                os.environ[ARCHITECTURE_VARIABLE] = self._before
            self._turn.notify_all()


_architectures = _Architectures()


@contextmanager
def _architecture(target: Target) -> Iterator[None]:
    if not target.is_cuda:
        yield
        return
    digits = target.name.removeprefix("sm_")
    _architectures.begin(f"{digits[:-1]}.{digits[-1]}")
    try:
        yield
    finally:
        _architectures.end()
