"""Build native libraries ahead of time, of all families or of some, also for targets that are not this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from kernwright.ops import FAMILIES
from kernwright.ops.catalog import fused_ops
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target

Made = TypeVar("Made")


def libraries(target: Target, families: Collection[str] = frozenset(FAMILIES.values())) -> list[Library]:
    """Return the native libraries of some families, each once."""
    found = [own.libraries(target) for family in sorted(families) for own in fused_ops(family).values()]
    return list(dict.fromkeys(library for own in found for library in own))


def build_ahead(
    targets: Sequence[Target],
    folder: Path,
    only: str = "*",
    told: Callable[[Path], None] = lambda path: None,
    nothing_for: Callable[[Target], None] = lambda target: None,
) -> list[Path]:
    """Build the libraries whose name matches `only` into a folder for KERNWRIGHT_BUILDS. Those that are there stay."""
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
    """Run one build per processor, since a compiler uses one. Results come in the order of `wanted`."""
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as builds:
        yield from builds.map(make, wanted)
