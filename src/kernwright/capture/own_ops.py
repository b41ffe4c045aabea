"""The names under which programs call Kernwright's ops."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import kernwright.ops
from kernwright.ops import FAMILIES

if TYPE_CHECKING:
    from kernwright.core.op import Op

PUBLIC = "kernwright.ops:"
WISHES = ("backend", "contract", "strict")  # arguments that select an implementation and do not change the result


def settings_of(op: Op) -> dict[str, Any]:
    """Return the arguments of a public call that its op does not have, with their defaults.

    Such an argument is a shorthand: `residual_in_fp32` of add_norm means a residual of zeros. Rows of tasks do not have
    such arguments.
    """
    if op.name not in FAMILIES:
        return {}
    own = {*(parameter.name for parameter in op.tensor_parameters), *op.scalar_defaults, *WISHES, "out"}
    parameters = inspect.signature(getattr(kernwright.ops, op.name)).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in own and p.default is not p.empty}


def target_of(op: str) -> str:
    return f"{PUBLIC}{op}"


def op_of(target: str) -> str | None:
    """Return the op whose public call a target is, or None."""
    name = target.removeprefix(PUBLIC)
    return name if target.startswith(PUBLIC) and name in FAMILIES else None


def places_of(op: str) -> tuple[str, ...]:
    """Return the places where an op is called, under the names of capture targets.

    These are the public function, the eager chain, which programs also call directly, and the torch op, which compiled
    code calls.
    """
    chain = f"kernwright.ops.{FAMILIES[op]}.definition:{op}.reference"
    return target_of(op), chain, f"torch.ops.kernwright:{op}"
