"""JudgedLibrary: the library of a promoted kernel, built with exactly the flags of the judged build."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernwright.core.digest import digest_of
from kernwright.core.errors import EnvironmentProblem
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target
from kernwright.runtime.toolchain import environment_for

OPTIMIZED = "-O3"  # every judged build has this flag, before the candidate's own flags


@dataclass(frozen=True)
class JudgedLibrary(Library):
    """A library whose flags are those that its candidate was judged with, since flags change rounding and speed.

    `compiled` are the files that are compiled, the others are headers, and `root` is the folder of all.
    """

    root: Path = Path()
    compiled: tuple[Path, ...] = ()
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()

    def digest(self, target: Target) -> str:
        """Return the digest of sources, the judged flags, target and tvm-ffi."""
        flags = {name: list(getattr(self, name)) for name in ("cflags", "cuda_cflags", "ldflags")}
        return digest_of({"library": super().digest(target), **flags, "compiled": [own.name for own in self.compiled]})

    def _compile(self, target: Target, folder: Path) -> str:
        import tvm_ffi.cpp

        if target.is_elsewhere:
            raise EnvironmentProblem(f"{self.name} can be built for this machine only", f"build it on {target.host}")
        files = [str(own) for own in self.compiled]
        try:
            with environment_for(target):
                return str(
                    tvm_ffi.cpp.build(
                        name=self.name,
                        cpp_files=[file for file in files if not file.endswith(".cu")],
                        cuda_files=[file for file in files if file.endswith(".cu")] if target.is_cuda else None,
                        extra_cflags=[OPTIMIZED, *self.cflags],
                        extra_cuda_cflags=[OPTIMIZED, *self.cuda_cflags],
                        extra_ldflags=list(self.ldflags),
                        extra_include_paths=[str(self.root)],
                        build_directory=str(folder),
                    )
                )
        except RuntimeError as error:
            lines = [line for line in str(error).splitlines() if "error" in line.lower()] or [str(error)[-500:]]
            raise EnvironmentProblem(
                f"{self.name} could not be built for {target.name}:\n" + "\n".join(lines[:6]),
                "use a compiler for C++17, and CUDA 12 or newer for a GPU",
            ) from error
