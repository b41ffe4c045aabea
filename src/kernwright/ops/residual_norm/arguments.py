"""Arguments of the norms behind a residual: what is wrong for every implementation, and what comes out.

`sums.h` says the same for the native kernels, which check for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernwright.ops._shared.checks import (
    check_affine,
    check_floating,
    check_norm_type,
    check_same_shape,
    check_width,
)
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.outputs import refuse_piled, rows_like


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
        refuse_piled(name, call.tensors[name])


def promise(tensors: Sequence[Tensor | None], device: str | None = None) -> tuple[Tensor, ...]:
    """add_norm's y and residual_out, each as x lies; the sum in the residual's dtype."""
    x, residual = tensors[:2]
    assert x is not None
    total = x.dtype if residual is None else residual.dtype
    return rows_like(x, device=device), rows_like(x, dtype=total, device=device)


def wide_zeros(x: Tensor) -> Tensor:
    """The residual that residual_in_fp32 stands for: one row, that stays in the cache."""
    return x.new_zeros(x.shape[-1:], dtype=torch.promote_types(x.dtype, torch.float32)).expand(x.shape)


def spelled(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """add_norm's arguments without residual_in_fp32, which only the public call has."""
    named = dict(named)
    if named.pop("residual_in_fp32", False):
        x = arguments[0] if arguments else named.get("x")
        residual = arguments[1] if len(arguments) > 1 else named.get("residual")
        if residual is None and isinstance(x, Tensor):
            if len(arguments) > 1:
                arguments = (x, wide_zeros(x), *arguments[2:])
            else:
                named["residual"] = wide_zeros(x)
    return arguments, named
