"""What a public call takes beside its op's own arguments and the wishes that say who is to run it."""

from __future__ import annotations

import inspect
from typing import Any

from kernwright.ops.definition import Op

OF_EVERY_CALL = ("backend", "contract", "strict", "out")


def public_settings(op: Op) -> dict[str, Any]:
    """By name, with their defaults: a short word for some of the op's own arguments, as add_norm's residual_in_fp32 is
    for a residual of zeros. Rows of a task have none of them."""
    from kernwright import ops
    from kernwright.ops import FAMILIES

    if op.name not in FAMILIES:
        return {}
    own = {*(parameter.name for parameter in op.tensor_parameters), *op.scalar_defaults, *OF_EVERY_CALL}
    parameters = inspect.signature(getattr(ops, op.name)).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in own and p.default is not p.empty}
