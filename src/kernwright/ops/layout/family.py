"""The ops that move data. They have no kernels yet: torch's own functions run."""

from __future__ import annotations

from kernwright.ops._shared.checks import check_axes
from kernwright.ops.layout import definition
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.fused_op import FusedOp

FRAMES = 2  # the axis of time in [B, C, T, H, W]


def check(call: Call) -> None:
    if call.op.name == "concat_sequence":
        _check_sequences(call)
    elif call.op.name == "causal_cat_pad":
        _check_frames(call)


def _check_sequences(call: Call) -> None:
    a, b = call.tensors["a"], call.tensors["b"]
    check_axes("a", a, least=2)
    if b.ndim != a.ndim or [*b.shape[:1], *b.shape[2:]] != [*a.shape[:1], *a.shape[2:]]:
        raise BadArgument("b", f"is {list(b.shape)}, which differs from a, {list(a.shape)}, in more than axis 1")


def _check_frames(call: Call) -> None:
    x, cache = call.tensors["x"], call.tensors.get("cache")
    check_axes("x", x, least=5, most=5)
    for name in ("pad_w", "pad_h", "pad_t"):
        if call.arguments[name] < 0:
            raise BadArgument(name, f"is {call.arguments[name]}, it must be at least 0")
    if cache is None:
        return
    check_axes("cache", cache, least=5, most=5)
    if [*cache.shape[:FRAMES], *cache.shape[3:]] != [*x.shape[:FRAMES], *x.shape[3:]]:
        raise BadArgument(
            "cache", f"is {list(cache.shape)}, which differs from x, {list(x.shape)}, in more than axis 2"
        )
    if cache.shape[FRAMES] > call.arguments["pad_t"]:
        frames, padding = cache.shape[FRAMES], call.arguments["pad_t"]
        raise BadArgument("cache", f"has {frames} frames, which do not fit into a padding of {padding}")


OPS = {
    op.name: FusedOp(op=op, implementations=(), check=check)
    for op in (definition.causal_cat_pad, definition.concat_sequence, definition.copy_contiguous)
}
