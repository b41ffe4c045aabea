"""Fused ops as functions over tensors.

    from kernwright import ops

    y = ops.norm_scale_shift(x, scale, shift)  # norm(x) * (1 + scale) + shift

Every op takes `backend=` and `contract=`, and `out=` if it returns anything. `kernwright.explain(ops.rms_norm, x)`
tells which implementation a call runs. Where no kernel fits, the op's definition runs: a short torch function that
every kernel is tested against.

There is one folder per family of ops, with the definitions of its ops in `definition.py` and their implementations in
`family.py`. The functions are derived from the definitions. `python -m kernwright.ops.stubs` writes their signatures to
`__init__.pyi` for editors and type checkers. A family never has the name of an op, since a submodule is an attribute of
its package. An op is imported on first use.
"""

from __future__ import annotations

from typing import Any

FAMILIES: dict[str, str] = {
    "add_norm": "residual_norm",
    "broadcast_add": "modulation",
    "causal_cat_pad": "layout",
    "concat_sequence": "layout",
    "copy_contiguous": "layout",
    "dual_modulate": "ltx2_modulate",
    "dual_modulate_from_table": "ltx2_modulate",
    "ernie_norm_modulate": "ernie",
    "ernie_residual_gate": "ernie",
    "ernie_residual_norm_modulate": "ernie",
    "fused_add_rms_norm_": "residual_norm",
    "group_norm_silu": "vae",
    "layer_norm": "plain_norm",
    "ltx2_qknorm_split_rope": "query_key",
    "ltx2_split_rotary": "rotation",
    "norm_scale_shift": "norm_modulation",
    "norm_scale_shift_select": "norm_modulation",
    "norm_tanh_mul_add": "norm_tanh",
    "norm_tanh_mul_add_norm_scale": "norm_tanh",
    "qknorm_rope": "query_key",
    "residual_gate": "modulation",
    "residual_norm_scale_shift": "norm_modulation",
    "residual_norm_scale_shift_select": "norm_modulation",
    "rms_modulate": "ltx2_modulate",
    "rms_modulate_from_table": "ltx2_modulate",
    "rms_norm": "plain_norm",
    "rotary": "rotation",
    "scale_shift": "modulation",
    "wan_rmsnorm_silu": "vae",
}

__all__ = list(FAMILIES)


def __getattr__(name: str) -> Any:
    if name not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernwright.ops.catalog import public_call

    found = globals()[name] = public_call(name)  # later accesses do not come here
    return found


def __dir__() -> list[str]:
    return sorted({*FAMILIES, "FAMILIES", *(name for name in globals() if name.startswith("__"))})
