"""The norms of video autoencoders. They have no kernels yet: torch's own functions run."""

from __future__ import annotations

from kernwright.ops._shared.checks import check_axes, check_broadcast, check_floating
from kernwright.ops.vae import definition
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.fused_op import FusedOp


def check(call: Call) -> None:
    x = call.tensors["x"]
    check_floating(call)
    check_axes("x", x, least=2)
    if call.op.name == "wan_rmsnorm_silu":
        for name in ("gamma", "bias"):
            if (own := call.tensors.get(name)) is not None:
                check_broadcast(name, own, x)
        return
    channels, groups = x.shape[1], call.arguments["num_groups"]
    if groups < 1 or channels % groups:
        raise BadArgument("num_groups", f"is {groups}, which does not divide the {channels} channels of x")
    for name in ("weight", "bias"):
        if (own := call.tensors[name]).shape != (channels,):
            raise BadArgument(name, f"is {list(own.shape)}, it must be {[channels]}, the channels of x")


OPS = {
    op.name: FusedOp(op=op, implementations=(), check=check)
    for op in (definition.group_norm_silu, definition.wan_rmsnorm_silu)
}
