"""What ships: one folder per family of ops, each op's definition beside its implementations.

    from kernwright import ops
    y = ops.norm_scale_shift(x, scale, shift)

A family's folder is never called as one of its ops: a package's submodules are its attributes too, and the op is what a
user means. Nothing is imported before an op is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernwright.ops.ernie.calls import ernie_norm_modulate as ernie_norm_modulate
    from kernwright.ops.ernie.calls import ernie_residual_gate as ernie_residual_gate
    from kernwright.ops.ernie.calls import ernie_residual_norm_modulate as ernie_residual_norm_modulate
    from kernwright.ops.ltx2_modulate.calls import dual_modulate as dual_modulate
    from kernwright.ops.ltx2_modulate.calls import dual_modulate_from_table as dual_modulate_from_table
    from kernwright.ops.ltx2_modulate.calls import rms_modulate as rms_modulate
    from kernwright.ops.ltx2_modulate.calls import rms_modulate_from_table as rms_modulate_from_table
    from kernwright.ops.modulation.calls import broadcast_add as broadcast_add
    from kernwright.ops.modulation.calls import residual_gate as residual_gate
    from kernwright.ops.modulation.calls import scale_shift as scale_shift
    from kernwright.ops.norm_modulation.calls import norm_scale_shift as norm_scale_shift
    from kernwright.ops.norm_modulation.calls import norm_scale_shift_select as norm_scale_shift_select
    from kernwright.ops.norm_modulation.calls import residual_norm_scale_shift as residual_norm_scale_shift
    from kernwright.ops.norm_modulation.calls import (
        residual_norm_scale_shift_select as residual_norm_scale_shift_select,
    )
    from kernwright.ops.norm_tanh.calls import norm_tanh_mul_add as norm_tanh_mul_add
    from kernwright.ops.norm_tanh.calls import norm_tanh_mul_add_norm_scale as norm_tanh_mul_add_norm_scale
    from kernwright.ops.plain_norm.calls import layer_norm as layer_norm
    from kernwright.ops.plain_norm.calls import rms_norm as rms_norm
    from kernwright.ops.residual_norm.calls import add_norm as add_norm
    from kernwright.ops.residual_norm.calls import fused_add_rms_norm_ as fused_add_rms_norm_

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


def __getattr__(name: str) -> Any:
    if name not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernwright.ops.catalog import public_call

    found = globals()[name] = public_call(name)  # looked up once: the next access does not come here
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *FAMILIES})
