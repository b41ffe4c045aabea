"""Inventory: the backends of some ops, and the native libraries that they need on a target.

    python -m kernwright.ops.inventory sm_90 scale_shift rms_norm

The judge runs this in a separate process, so that it imports no op. A library is in a folder that KERNWRIGHT_BUILDS
names or in the user's cache, or it is built there. The last line of the output is the answer, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.ops import FAMILIES
from kernwright.ops.builds import libraries, side_by_side
from kernwright.ops.catalog import dispatcher
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target


def inventory(target: Target | None, ops: Sequence[str]) -> dict[str, Any]:
    """Return per op the backends besides its reference, best first, the libraries of those ops' families, and the
    reasons for missing ones."""
    backends = {op: [name for name in dispatcher(op).backends if name != "torch"] for op in ops}
    found: dict[str, Any] = {"backends": backends, "libraries": [], "unbuilt": {}}
    if target is None:
        return found

    def made(library: Library) -> Path | KernwrightError:
        try:
            return library.need(target)
        except KernwrightError as problem:  # the other libraries are useful without it
            return problem

    wanted = libraries(target, {FAMILIES[op] for op, own in backends.items() if own})
    for library, result in zip(wanted, side_by_side(wanted, made), strict=True):
        if isinstance(result, Path):
            found["libraries"].append(str(result))
        else:
            found["unbuilt"][library.name] = result.cause
    return found


def main() -> None:
    target, *ops = sys.argv[1:]
    print(json.dumps(inventory(Target.named(target) if target != "none" else None, ops)))


if __name__ == "__main__":
    main()
