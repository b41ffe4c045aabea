"""Arguments of the norms behind a residual: what is wrong for every implementation, and what comes out.

`sums.h` says the same for the native kernels, which check for themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernwright.ops.argument_checks import (
    check_affine,
    check_floating,
    check_norm_type,
    check_same_shape,
    check_width,
)
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.outputs import refuse_expanded


def check(call: Call) -> None:
    x = call.tensors["x"]
    check_floating(call)
    check_width(x)
    for name in ("residual", "second"):
        if (own := call.tensors.get(name)) is not None:
            check_same_shape(name, own, x)
    if (scale := call.tensors.get("row_scale")) is not None and scale.shape != x.shape[:-1]:
        raise BadArgument(
            "row_scale", f"is {list(scale.shape)}, it must be {list(x.shape[:-1])}, a number per row of x"
        )
    check_affine(call, x)
    if "norm_type" in call.arguments:
        check_norm_type(call)
    for name in call.op.inplace:
        refuse_expanded(name, call.tensors[name])


def promise(tensors: Sequence[Tensor | None], device: str | None = None) -> tuple[Tensor, ...]:
    """add_norm's y and residual_out, each as x lies; the sum in the residual's dtype."""
    x, residual = tensors[:2]
    assert x is not None
    total = x.dtype if residual is None else residual.dtype
    return torch.empty_like(x, device=device), torch.empty_like(x, dtype=total, device=device)
