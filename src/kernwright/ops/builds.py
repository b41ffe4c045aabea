"""Builds ahead of time: native libraries of all families, or of some, for targets that may be elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from kernwright.ops import FAMILIES
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target

Made = TypeVar("Made")


def libraries(target: Target, families: Collection[str] = frozenset(FAMILIES.values())) -> list[Library]:
    """Of families that have native kernels; each one's module `native` lists its own. What two need is there once."""
    found: list[Library] = []
    for family in sorted(families):
        name = f"kernwright.ops.{family}.native"
        if importlib.util.find_spec(name):
            found += importlib.import_module(name).libraries(target)
    return list(dict.fromkeys(found))


def build_ahead(
    targets: Sequence[Target],
    folder: Path,
    only: str = "*",
    told: Callable[[Path], None] = lambda path: None,
    nothing_for: Callable[[Target], None] = lambda target: None,
) -> list[Path]:
    """Libraries whose name fits `only`, into a folder that KERNWRIGHT_BUILDS can name. One that is there stays."""
    done = []
    for target in targets:
        wanted = [library for library in libraries(target) if fnmatchcase(library.name, only)]
        if not wanted:
            nothing_for(target)

        def made(library: Library, target: Target = target) -> Path:
            return library.found_in(folder, target) or library.build(target, folder)

        for path in side_by_side(wanted, made):
            done.append(path)
            told(path)
    return done


def side_by_side(wanted: Sequence[Library], make: Callable[[Library], Made]) -> Iterator[Made]:
    """One build for each processor, since nearly all of its time is a compiler's, which uses one. In their order."""
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as builds:
        yield from builds.map(make, wanted)
