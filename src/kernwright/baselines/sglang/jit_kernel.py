"""Adapters of sglang 0.5.12.post1: the kernels from which KDA-Pilot started, and two that later versions lack."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernwright.baselines.adapter import Function, Table, contiguous, dimensions, dtypes
from kernwright.baselines.lock import CUTEDSL
from kernwright.baselines.sglang import kernels as later
from kernwright.baselines.sglang import norms
from kernwright.baselines.sglang import package as its

ROOT = "sglang.jit_kernel.diffusion"
FOLDER = "sglang/jit_kernel/diffusion"
TRITON = f"{ROOT}.triton"

TABLE = Table(
    absent=dict.fromkeys(
        (
            "residual_gate", "broadcast_add", "concat_sequence", "copy_contiguous",
            "rms_modulate", "rms_modulate_from_table", "causal_cat_pad", "dual_modulate", "dual_modulate_from_table",
            "ltx2_qknorm_split_rope", "ernie_norm_modulate", "ernie_residual_norm_modulate", "ernie_residual_gate",
            "wan_rmsnorm_silu",
        ),
        "sglang 0.5.12.post1 has no such kernel",
    )
)  # fmt: skip


def _same(op: str, *functions: str, file: str, kernels: str, folder: str = FOLDER) -> None:
    """Add an op whose function is called like that of 0.5.23, with the same restrictions."""
    known = later.TABLE.adapters[op]
    TABLE.add(
        op, *functions, file=f"{folder}/{file}", kernels=kernels, objections=known.objections, needs=known.needs,
        interpreted=known.interpreted, rounding=known.rounding,
    )(known.bind)  # fmt: skip


CUTE_NORM = f"{ROOT}.cutedsl.scale_residual_norm_scale_shift"
_same(
    "norm_scale_shift", f"{CUTE_NORM}:fused_norm_scale_shift",
    file="cutedsl/scale_residual_norm_scale_shift.py", kernels=norms.CUTE_KERNELS,
)  # fmt: skip
_same(
    "residual_norm_scale_shift", f"{CUTE_NORM}:fused_scale_residual_norm_scale_shift",
    file="cutedsl/scale_residual_norm_scale_shift.py", kernels=norms.CUTE_KERNELS,
)  # fmt: skip
_same("layer_norm", f"{TRITON}.norm:norm_infer", file="triton/norm.py", kernels="_norm_infer_kernel")
_same(
    "rms_norm", f"{TRITON}.rmsnorm_onepass:triton_one_pass_rms_norm", "sglang.jit_kernel.norm:rmsnorm",
    file="triton/rmsnorm_onepass.py", kernels="_rms_norm_tiled_onepass|rmsnorm_(cta|warp)",
)  # fmt: skip
_same("add_norm", f"{TRITON}.norm:rms_norm_fn", file="triton/norm.py", kernels="_layer_norm_fwd_1pass_kernel")
_same(
    "fused_add_rms_norm_", "sglang.jit_kernel.norm:fused_add_rmsnorm", file="norm.py",
    kernels="fused_add_rmsnorm_reg_kernel", folder="sglang/jit_kernel",
)  # fmt: skip
_same(
    "group_norm_silu", f"{TRITON}.group_norm_silu:triton_group_norm_silu",
    file="triton/group_norm_silu.py", kernels="_group_norm_(silu_contiguous|apply)",
)  # fmt: skip
_same("rotary", f"{TRITON}.rotary:apply_rotary_embedding", file="triton/rotary.py", kernels="_rotary_embedding_kernel")
_same(
    "ltx2_split_rotary", f"{TRITON}.ltx2_rotary:apply_ltx2_split_rotary_emb",
    file="triton/ltx2_rotary.py", kernels="_ltx2_split_rotary_kernel",
)  # fmt: skip
_same(
    "qknorm_rope", f"{ROOT}.qknorm_rope:fused_inplace_qknorm_rope", file="qknorm_rope.py", kernels="fused_qknorm_rope"
)
_same(
    "scale_shift", f"{TRITON}.scale_shift:fuse_scale_shift_kernel",
    file="triton/scale_shift.py", kernels="fuse_scale_shift_kernel_blc_opt|_fused_scale_shift_4d_kernel",
)  # fmt: skip
_same(
    "norm_scale_shift_select", f"{TRITON}.scale_shift:fuse_layernorm_scale_shift_gate_select01_kernel",
    file="triton/scale_shift.py", kernels="_fused_layernorm_scale_shift_gate_select01_kernel",
)  # fmt: skip
_same(
    "residual_norm_scale_shift_select",
    f"{TRITON}.scale_shift:fuse_residual_layernorm_scale_shift_gate_select01_kernel",
    file="triton/scale_shift.py", kernels="_fused_residual_layernorm_scale_shift_gate_select01_kernel",
)  # fmt: skip


TANH_MODULE = f"{ROOT}.cutedsl.norm_tanh_mul_add_norm_scale"
TANH_FILE = f"{FOLDER}/cutedsl/norm_tanh_mul_add_norm_scale.py"
TANH_OBJECTIONS = (
    dimensions(3, "x", "scale", "shift", "scale2"), dtypes(*its.FLOATS, of=("x",)), norms.cute_width,
    contiguous("weight", "weight2"),
)  # fmt: skip


@TABLE.add(
    "norm_tanh_mul_add", f"{TANH_MODULE}:fused_norm_tanh_mul_add", file=TANH_FILE, kernels=norms.CUTE_KERNELS,
    objections=TANH_OBJECTIONS, needs=(CUTEDSL,),
)  # fmt: skip
def norm_tanh_mul_add(fused: Function) -> Function:
    def call(
        x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor | None, bias: Tensor | None,
        *, norm_type: str, eps: float,
    ) -> Any:  # fmt: skip
        return fused(x, weight, bias, scale, shift, norm_type, eps)

    return call


@TABLE.add(
    "norm_tanh_mul_add_norm_scale", f"{TANH_MODULE}:fused_norm_tanh_mul_add_norm_scale", file=TANH_FILE,
    kernels=norms.CUTE_KERNELS, objections=TANH_OBJECTIONS, needs=(CUTEDSL,),
)  # fmt: skip
def norm_tanh_mul_add_norm_scale(fused: Function) -> Function:
    def call(
        x: Tensor, scale: Tensor, shift: Tensor, scale2: Tensor, weight: Tensor | None, bias: Tensor | None,
        weight2: Tensor | None, bias2: Tensor | None, *, norm_type: str, eps: float,
    ) -> Any:  # fmt: skip
        return fused(x, weight, bias, scale, shift, weight2, bias2, scale2, norm_type, eps)

    return call
