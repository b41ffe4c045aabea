"""Where Kernwright's own ops are met: each in several places, and under the name that programs know.

Found by the names of files, since to import the ops is to import torch.
"""

from __future__ import annotations

import pkgutil
from pathlib import Path

import kernwright.ops
from kernwright.ops import FAMILIES

PUBLIC = "kernwright.ops:"
WISHES = ("backend", "contract", "strict")  # arguments that say who is to run a call, not what it computes


def target_of(op: str) -> str:
    return f"{PUBLIC}{op}"


def op_of(target: str) -> str | None:
    """The op whose public call a target is."""
    name = target.removeprefix(PUBLIC)
    return name if target.startswith(PUBLIC) and name in FAMILIES else None


def places_of(op: str) -> tuple[str, ...]:
    """The public call, which modules may take from where it is defined; the eager chain, which stands for it where an
    op has no kernel, and which programs call by itself; the torch op, which is what compiled code calls."""
    folder = Path(kernwright.ops.__file__).parent / FAMILIES[op]
    family = f"kernwright.ops.{FAMILIES[op]}"
    modules = [module.name for module in pkgutil.iter_modules([str(folder)])]
    chains = [f"{family}.{name}:{op}.reference" for name in modules if name.endswith("definition")]
    public = [f"{family}.calls:{op}"] if "calls" in modules else []
    return (*public, *chains, f"torch.ops.kernwright:{op}")
