"""Where Kernwright's own ops are met: each in several places, and under the name that programs know.

Found by the names of files, since to import the ops is to import torch.
"""

from __future__ import annotations

import inspect
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
    """Return where else an op is called: its eager chain, which programs call by itself and which runs where an op has
    no kernel; and the torch op, which compiled code calls."""
    chain = f"kernwright.ops.{FAMILIES[op]}.definition:{op}.reference"
    return chain, f"torch.ops.kernwright:{op}"
