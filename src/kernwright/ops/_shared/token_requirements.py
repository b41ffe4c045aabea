"""Requirements of fused kernels over tokens. Each returns why a call is not taken, or None."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from kernwright.ops._shared.folding import AXES
from kernwright.ops._shared.folding import MOST_AXES as MOST_AXES
from kernwright.runtime.call import Call

WIDEST = 65536
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def tokens_fit(
    call: Call,
    modulations: Collection[str],
    alike: Collection[str] = ("residual",),
    indices: Collection[str] = (),
    most_axes: int = AXES,
) -> str | None:
    """Require tokens that fused kernels take."""
    x, x_name = call.first, call.op.activations[0]
    if (refusal := axes_fit(x, x_name, most_axes)) is not None:
        return refusal
    if x.shape[-1] > WIDEST:
        return f"{x_name} is {x.shape[-1]} wide, over {WIDEST}"
    for name, tensor in call.tensors.items():
        if name in indices:
            continue
        if tensor.dtype not in DTYPES:
            return f"{name} is {tensor.dtype}"
        last = tensor.stride(-1) if tensor.ndim and tensor.shape[-1] > 1 else 1
        # A modulation whose one number was expanded to a row has step 0, and is read as one number.
        if last != 1 and not (last == 0 and name in modulations):
            return f"{name} has a last axis with gaps"
    for name in alike:
        if (own := call.tensors.get(name)) is not None:
            if own.dtype != x.dtype:
                return f"{name} is {own.dtype}, {x_name} is {x.dtype}"
            if own.shape != x.shape:
                return f"{name} is {list(own.shape)}, {x_name} is {list(x.shape)}"
    return None


def axes_fit(x: Tensor, name: str, most: int = MOST_AXES) -> str | None:
    if 2 <= x.ndim <= most:
        return None
    return f"{name} has {x.ndim} dimensions, not " + ("[B, S, D] or [S, D]" if most == AXES else f"2 to {most}")


def rounds_to_nearest(call: Call) -> str | None:
    """Refuse bfloat16 in Triton's interpreter, which truncates instead of rounding."""
    interpreted = call.first.device.type == "cpu" and torch.bfloat16 in {own.dtype for own in call.tensors.values()}
    return "Triton's interpreter does not round bfloat16" if interpreted else None


def rows_fit(call: Call, numbers: Collection[str] = ()) -> str | None:
    """Require rows of any leading axes that fused kernels take. `numbers` have one element per row, at any stride."""
    x = call.first
    if x.ndim > MOST_AXES:
        return f"x has {x.ndim} dimensions, over {MOST_AXES}"
    if x.shape[-1] > WIDEST:
        return f"x is {x.shape[-1]} wide, over {WIDEST}"
    for name, tensor in call.tensors.items():
        if tensor.dtype not in DTYPES:
            return f"{name} is {tensor.dtype}"
        if name not in numbers and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            return f"{name} has a last axis with gaps"
    return None
