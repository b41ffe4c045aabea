"""Arguments of norm_scale_shift and residual_norm_scale_shift: what is wrong for every implementation.

`arguments.h` says the same for the native kernels, which check for themselves.
"""

from __future__ import annotations

from kernwright.ops.modulation_layout import check_modulation
from kernwright.runtime.call import BadArgument, Call


def check(call: Call) -> None:
    x = call.tensors["x"]
    for name, tensor in call.tensors.items():
        if not tensor.is_floating_point():
            raise BadArgument(name, f"is {tensor.dtype}, not floating point")
    if x.ndim == 0:
        raise BadArgument("x", "has no dimension to norm over")
    residual = call.tensors.get("residual")
    if residual is not None and residual.shape != x.shape:
        raise BadArgument("residual", f"is {list(residual.shape)}, x is {list(x.shape)}")
    for name in ("scale", "shift", "gate"):
        if (modulation := call.tensors.get(name)) is not None:
            check_modulation(name, modulation, x)
    for name in ("weight", "bias"):
        if (affine := call.tensors.get(name)) is not None and affine.shape != x.shape[-1:]:
            raise BadArgument(name, f"is {list(affine.shape)}, it must be {list(x.shape[-1:])}, the width of x")
    norm_type = call.arguments["norm_type"]
    if norm_type not in ("layer", "rms"):
        raise BadArgument("norm_type", f"is 'layer' or 'rms', not {norm_type!r}")
    if "bias" in call.tensors and norm_type == "rms":
        raise BadArgument("bias", "an RMS norm has no bias")
    if "bias" in call.tensors and "weight" not in call.tensors:
        raise BadArgument("bias", "comes only with a weight", "pass a weight of ones")
