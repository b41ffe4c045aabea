"""Arguments of the family: what is wrong for every implementation, and what a choice of modulations looks like.

`arguments.h` and `select_arguments.h` say the same for the native kernels, which check for themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.ops._shared.checks import (
    broadcast_shape,
    check_affine,
    check_bias,
    check_floating,
    check_norm_type,
    check_same_shape,
    check_width,
)
from kernwright.ops._shared.modulation_layout import aligned, check_modulation
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.outputs import Promise, rows_like, shaped_like

SETS = ("scale0", "shift0", "gate0", "scale1", "shift1", "gate1")


def check(call: Call) -> None:
    """Of norm_scale_shift and residual_norm_scale_shift."""
    x = _checked_tokens(call)
    for name in ("scale", "shift", "gate"):
        if (modulation := call.tensors.get(name)) is not None:
            check_modulation(name, modulation, x)
    check_affine(call, x)
    check_bias(call, is_rms=check_norm_type(call))


def check_select(call: Call) -> None:
    """Of the pair with a choice: six rows `[B, D]`, and an index `[B, S]`, each with any axis 1."""
    x, index = _checked_tokens(call), call.tensors["index"]
    if x.ndim != 3:
        raise BadArgument("x", f"is {list(x.shape)}, it must be [B, S, D]")
    batches, tokens, width = x.shape
    for name in SETS:
        if not _broadcasts(own := call.tensors[name], (batches, width)) or own.ndim != 2:
            raise BadArgument(
                name, f"is {list(own.shape)}, it must be [{batches}, {width}], a row per batch entry of x"
            )
    if index.is_floating_point() or index.is_complex():
        raise BadArgument("index", f"is {index.dtype}, it must be integers or booleans")
    if not _broadcasts(index, (batches, tokens)):
        raise BadArgument("index", f"is {list(index.shape)}, it must be [{batches}, {tokens}], a number per token of x")
    if (gate := call.tensors.get("residual_gate")) is not None:
        check_modulation("residual_gate", gate, x)
    check_affine(call, x)
    check_bias(call, is_rms=False)


def _checked_tokens(call: Call) -> Tensor:
    x = call.tensors["x"]
    check_floating(call, but=("index",))
    check_width(x)
    if (residual := call.tensors.get("residual")) is not None:
        check_same_shape("residual", residual, x)
    return x


def _broadcasts(own: Tensor, sizes: tuple[int, ...]) -> bool:
    return own.ndim <= len(sizes) and all(
        size in (1, whole) for size, whole in zip(reversed(own.shape), reversed(sizes), strict=False)
    )


def over_places(index: Tensor) -> Tensor:
    """The index as a modulation of one channel, `[B, S, 1]`."""
    return aligned(index, 2)[..., None]


def chosen_gate_like(x: Tensor, gate0: Tensor, gate1: Tensor) -> Tensor:
    """A row per token, in the dtype that holds both gates; asked for only where it is another than x's, which costs."""
    if gate0.dtype == gate1.dtype == x.dtype:
        return rows_like(x)
    return rows_like(x, dtype=torch.promote_types(gate0.dtype, gate1.dtype))


def chosen_gate_of(x: Tensor, index: Tensor, gate0: Tensor, gate1: Tensor, device: str | None = None) -> Tensor:
    """As a call returns it: where all tokens, or all batch entries, pick one row it has one."""
    shape, dtype = chosen_gate_shape(index, gate0, gate1), torch.promote_types(gate0.dtype, gate1.dtype)
    return shaped_like(x, shape, dtype, device)


def chosen_gate_shape(index: Tensor, gate0: Tensor, gate1: Tensor) -> torch.Size:
    """As the definition has it, where x has no part in it."""
    return broadcast_shape(over_places(index).shape, *(gate[:, None, :].shape for gate in (gate0, gate1)))


def select_promise(op: Op) -> Promise:
    def promise(tensors: Sequence[Tensor | None], device: str | None = None) -> tuple[Tensor, ...]:
        given = dict(zip((own.name for own in op.tensor_parameters), tensors, strict=True))
        x, index, gate0, gate1 = (given[name] for name in ("x", "index", "gate0", "gate1"))
        assert x is not None and index is not None and gate0 is not None and gate1 is not None
        like_x = [rows_like(x, device=device) for _ in op.outputs[:-1]]
        return *like_x, chosen_gate_of(x, index, gate0, gate1, device)

    return promise
