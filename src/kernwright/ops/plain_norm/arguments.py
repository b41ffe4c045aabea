"""Arguments of layer_norm and rms_norm: what is wrong for every implementation. `rows.h` says the same for the native
kernels, which check for themselves."""

from __future__ import annotations

from kernwright.runtime.call import BadArgument, Call


def check(call: Call) -> None:
    x = call.tensors["x"]
    for name, tensor in call.tensors.items():
        if not tensor.is_floating_point():
            raise BadArgument(name, f"is {tensor.dtype}, not floating point")
    if x.ndim == 0:
        raise BadArgument("x", "has no dimension to norm over")
    for name in ("weight", "bias"):
        if (affine := call.tensors.get(name)) is not None and affine.shape != x.shape[-1:]:
            raise BadArgument(name, f"is {list(affine.shape)}, it must be {list(x.shape[-1:])}, the width of x")
