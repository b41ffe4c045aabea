"""The norms of queries and keys with their rotation. They have no kernels yet: torch's own functions run."""

from __future__ import annotations

import torch

from kernwright.ops._shared.checks import check_axes, check_floating, check_split_heads
from kernwright.ops.query_key import definition
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.fused_op import FusedOp
from kernwright.runtime.outputs import refuse_piled

INDICES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check(call: Call) -> None:
    check_floating(call, but=("positions",))
    if call.op.name == "ltx2_qknorm_split_rope":
        for name in ("q", "k"):
            check_split_heads(call, name, f"{name}_cos", f"{name}_sin")
            _check_weight(call, f"{name}_norm_weight", name)
        return
    cache, positions = call.tensors["cos_sin_cache"], call.tensors["positions"]
    check_axes("cos_sin_cache", cache, least=2, most=2)
    if positions.dtype not in INDICES:
        raise BadArgument("positions", f"is {positions.dtype}, not an integer dtype")
    for name in ("q", "k"):
        own = call.tensors[name]
        check_axes(name, own, least=3)
        refuse_piled(name, own)
        if positions.shape != own.shape[:-2]:
            raise BadArgument(
                "positions", f"is {list(positions.shape)}, it must be {list(own.shape[:-2])}, the tokens of {name}"
            )
        if cache.shape[1] % 2 or cache.shape[1] > own.shape[-1]:
            raise BadArgument(
                "cos_sin_cache",
                f"is {cache.shape[1]} wide, not an even number up to the width of {name}, {own.shape[-1]}",
            )
        _check_weight(call, f"{name}_weight", name)


def _check_weight(call: Call, name: str, of: str) -> None:
    weight, width = call.tensors[name], call.tensors[of].shape[-1]
    if weight.shape != (width,):
        raise BadArgument(name, f"is {list(weight.shape)}, it must be {[width]}, the width of {of}")


OPS = {
    op.name: FusedOp(op=op, implementations=(), check=check)
    for op in (definition.ltx2_qknorm_split_rope, definition.qknorm_rope)
}
