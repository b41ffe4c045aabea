"""Arguments of norm_tanh_mul_add and norm_tanh_mul_add_norm_scale: what is wrong for every implementation."""

from __future__ import annotations

from kernwright.ops._shared.checks import check_affine, check_bias, check_floating, check_norm_type, check_width
from kernwright.ops._shared.modulation_layout import check_modulation
from kernwright.runtime.call import Call

MODULATIONS = ("scale", "shift", "scale2")


def check(call: Call) -> None:
    x = call.tensors["x"]
    check_floating(call)
    check_width(x)
    for name in MODULATIONS:
        if (modulation := call.tensors.get(name)) is not None:
            check_modulation(name, modulation, x)
    check_affine(call, x, ("weight", "bias", "weight2", "bias2"))
    is_rms = check_norm_type(call)
    check_bias(call, is_rms)
    check_bias(call, is_rms, "bias2", "weight2")
