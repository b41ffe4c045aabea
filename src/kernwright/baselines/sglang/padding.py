"""Adapter of sglang 0.5.23 for the input of a causal convolution: the cache, followed by x, padded."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernwright.baselines.adapter import Function, Signature, Table, contiguous, dimensions, dtypes
from kernwright.baselines.sglang import package as its

TABLE = Table()


def padded_size(signature: Signature) -> str | None:
    """Decline sizes that the launcher does not take.

    It writes 16 bytes at a time. The cached frames replace padding before x, so there must not be more of them than
    padding.
    """
    if "cache" not in signature:
        return "no cache: its layer pads alone then"
    x, cache = signature["x"], signature["cache"]
    width, height, depth = (int(signature.scalars[name]) for name in ("pad_w", "pad_h", "pad_t"))
    if depth < cache.shape[2]:
        return f"a cache of {cache.shape[2]} frames for a padding of {depth}"
    elements = x.shape[0] * x.shape[1] * (x.shape[2] + depth) * (x.shape[3] + 2 * height) * (x.shape[4] + 2 * width)
    return "its output is no multiple of 16 bytes" if elements * x.item_bytes % 16 else None


@TABLE.add(
    "causal_cat_pad", f"{its.FACADE}:fused_causal_conv3d_cat_pad_cuda", file=f"{its.KDA}/causal_conv3d_cat_pad_jit.py",
    kernels="cat_pad_flat_kernel",
    objections=(dimensions(5, "x", "cache"), dtypes(*its.FLOATS, of=("x",)), contiguous("x", "cache"), padded_size),
)  # fmt: skip
def causal_cat_pad(fused: Function) -> Function:
    def call(x: Tensor, cache: Tensor, *, pad_w: int, pad_h: int, pad_t: int) -> Any:
        return fused(x, cache, (pad_w, pad_w, pad_h, pad_h, pad_t, 0))

    return call
