"""The rotations. They have no kernels yet: torch's own functions run."""

from __future__ import annotations

from kernwright.ops._shared.checks import check_axes, check_broadcast_over, check_floating, check_split_heads
from kernwright.ops.rotation import definition
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.fused_op import FusedOp


def check(call: Call) -> None:
    check_floating(call)
    if call.op.name == "ltx2_split_rotary":
        check_split_heads(call, "x", "cos", "sin")
        return
    x = call.tensors["x"]
    check_axes("x", x, least=3)
    if x.shape[-1] % 2:
        raise BadArgument("x", f"is {x.shape[-1]} wide; the rotation turns pairs of channels")
    for name in ("cos", "sin"):
        own = call.tensors[name]
        check_axes(name, own, least=2, most=2)
        check_broadcast_over(name, own, (x.shape[-3], x.shape[-1] // 2), "tokens and pairs of x")


OPS = {
    op.name: FusedOp(op=op, implementations=(), check=check) for op in (definition.ltx2_split_rotary, definition.rotary)
}
