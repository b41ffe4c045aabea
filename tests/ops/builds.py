"""Builds that tests share: each content is compiled once, by the first test or process that needs it, and kept across
runs.

They lie in the user's cache next to the libraries that Kernwright builds itself (see `kernwright.runtime.library`). A
file's name contains the digest of its sources, of every header that they include, and of its flags.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from kernwright.core.digest import digest_of
from kernwright.runtime import library
from kernwright.runtime.library import Library, cache_folder, include_paths
from kernwright.runtime.target import Target, nvcc

KEPT_S = 14 * 24 * 3600.0  # builds that no test has used for this long are removed
UNOPTIMISED = ("-Xptxas=-O0", "-Xcicc=-O1")  # for kernels that need only compile
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def shared_folder() -> Path:
    return cache_folder().with_name("test-builds")


def with_included(sources: Iterable[Path]) -> tuple[Path, ...]:
    """Return sources and every header of ours that they include, directly or not, in a fixed order."""
    found = list(dict.fromkeys(sources))
    folders = [Path(folder) for folder in include_paths(found)]
    for path in found:  # the list grows during the loop
        for name in included_by(path):
            header = next((own for folder in (path.parent, *folders) if (own := folder / name).is_file()), None)
            if header is not None and header not in found:
                found.append(header)
    return tuple(found)


def included_by(source: Path) -> list[str]:
    """Return the names of the headers that a file itself includes."""
    return _INCLUDE.findall(source.read_text(encoding="utf-8"))


def contents_of(sources: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sources)).hexdigest()


def shared_library(own: Library, target: Target) -> Path:
    """Return where a library lies, built now if no test has built the same content before."""
    # A macro that no source reads puts headers that the library does not list, and changed flags, into its name.
    flags = [*library.CPU_FLAGS, *library.HOST_FLAGS, *library.CUDA_FLAGS]
    content = digest_of({"sources": contents_of(with_included(own.sources)), "flags": flags})
    whole = replace(own, macros=(*own.macros, ("KERNWRIGHT_INCLUDED", content)))

    def make(folder: Path) -> Path:
        return whole.found_in(folder, target) or whole.build(target, folder)

    return made_once(whole.file_name(target), make)


def shared_with_slow_host(own: Library, target: Target) -> Path:
    """Return where a library lies whose host code is not optimised, for tests that only look at its kernels. This
    takes a third of the build time."""
    with patch.object(library, "HOST_FLAGS", ("-O0",)):
        return shared_library(own, target)


def shared_host_code(own: Library, target: Target) -> Path:
    """Return where the host code of a library lies, for tests that ask which kernel it would launch. It has no kernels,
    which take most of the build time: their names are looked up when a kernel is launched."""
    host = tuple(source for source in own.sources if source.suffix != ".cu")
    return shared_with_slow_host(replace(own, sources=host), target)


def shared_compilation(own: Library, architecture: str, kind: str, *flags: str) -> Path:
    """Return the kernels of a library with one file of them, alone, as a cubin or as PTX (``kind``)."""
    (made,) = shared_compilations(own, architecture, kind, *flags)
    return made


def shared_compilations(own: Library, architecture: str, kind: str, *flags: str) -> list[Path]:
    """Return the kernels of a library alone, compiled with flags: a cubin or PTX (``kind``) for each of its files."""
    kernels = [source for source in own.sources if source.suffix == ".cu"]
    macros = [f"-D{name}={value}" for name, value in own.macros]
    return [_compilation(kernel, own, [f"-{kind}", f"-arch={architecture}", *flags, *macros]) for kernel in kernels]


def _compilation(kernel: Path, own: Library, arguments: list[str]) -> Path:
    sources = with_included((kernel, *own.sources))
    kind = arguments[0].removeprefix("-")
    made_of = {"sources": contents_of(sources), "arguments": arguments, "nvcc": str(nvcc())}
    name = f"{kernel.stem}-{digest_of(made_of)[:24]}.{kind}"

    def make(folder: Path) -> Path:
        made = folder / name
        if not made.exists():
            folders = [f"-I{folder}" for folder in include_paths(sources)]
            partial = made.with_suffix(f".{os.getpid()}")
            command = [str(nvcc()), "-std=c++17", *arguments, *folders, "-o", str(partial), str(kernel)]
            subprocess.run(command, check=True)
            partial.replace(made)
        return made

    return made_once(name, make)


def made_once(name: str, make: Callable[[Path], Path]) -> Path:
    """Return the file that `make` makes in the shared folder. Of several processes, one makes it at a time."""
    folder = shared_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a process that asks for the same content waits for it
        made = make(folder)
        os.utime(made)
    _remove_unused(folder)
    return made


def _remove_unused(folder: Path) -> None:
    oldest = time.time() - KEPT_S
    for path in folder.iterdir():
        with suppress(OSError):
            if path.is_file() and path.suffix != ".sha256" and path.stat().st_mtime < oldest:
                path.unlink()
