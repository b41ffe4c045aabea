"""Where Kernwright's own ops are met: each in several places, and under the name that programs know.

Found by the names of files, since to import the ops is to import torch.
"""

from __future__ import annotations

import inspect
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernwright.ops
from kernwright.ops import FAMILIES

if TYPE_CHECKING:
    from kernwright.core.op import Op

PUBLIC = "kernwright.ops:"
WISHES = ("backend", "contract", "strict")  # arguments that say who is to run a call, not what it computes


def settings_of(op: Op) -> dict[str, Any]:
    """What a public call takes beside its op's own arguments, with defaults: a short word for some of them, as
    add_norm's residual_in_fp32 is for a residual of zeros. Rows of a task have none of these."""
    if op.name not in FAMILIES:
        return {}
    own = {*(parameter.name for parameter in op.tensor_parameters), *op.scalar_defaults, *WISHES, "out"}
    parameters = inspect.signature(getattr(kernwright.ops, op.name)).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in own and p.default is not p.empty}


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
