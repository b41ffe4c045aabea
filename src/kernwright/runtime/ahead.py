"""Builds ahead of time: every native library of every family, for targets that may be elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from kernwright.ops import FAMILIES
from kernwright.runtime.library import Library, Target


def libraries(target: Target) -> list[Library]:
    """Of all families that have native kernels; each one's module `native` lists its own."""
    found: list[Library] = []
    for family in sorted(set(FAMILIES.values())):
        name = f"kernwright.ops.{family}.native"
        if importlib.util.find_spec(name):
            found += importlib.import_module(name).libraries(target)
    return found


def build_ahead(
    targets: Sequence[Target], folder: Path, only: str = "*", told: Callable[[Path], None] = lambda path: None
) -> list[Path]:
    """Libraries whose name fits `only`, into a folder that KERNWRIGHT_BUILDS can name. One that is there stays."""
    done = []
    for target in targets:
        for library in libraries(target):
            if fnmatchcase(library.name, only):
                done.append(library.found_in(folder, target) or library.build(target, folder))
                told(done[-1])
    return done
