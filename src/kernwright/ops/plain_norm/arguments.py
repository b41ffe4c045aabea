"""Arguments of layer_norm and rms_norm: what is wrong for every implementation. `rows.h` says the same for the native
kernels, which check for themselves."""

from __future__ import annotations

from kernwright.ops._shared.checks import check_affine, check_floating, check_width
from kernwright.runtime.call import Call


def check(call: Call) -> None:
    x = call.tensors["x"]
    check_floating(call)
    check_width(x)
    check_affine(call, x)
