"""sglang 0.5.23: its diffusion kernels through the functions that its models call.

The layers around them decide by the rules that the objections here repeat; where a layer would take another way, the
row is declined, for that other way is no kernel of sglang's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernwright.baselines.adapter import (
    Function,
    Signature,
    Table,
    contiguous,
    dimensions,
    dtypes,
    least_capability,
    same_dtype,
)
from kernwright.baselines.lock import CUTEDSL

FACADE = "sglang.kernels.ops.diffusion"
FOLDER = "sglang/kernels/ops/diffusion"
KDA = "sglang/kernels/kda_kernels"
HALVES = ("bf16", "fp16")
FLOATS = ("bf16", "fp16", "fp32")
MOST_WIDTH, WIDTH_STEP = 8192, 256
FUSED_ADD_STEP = 16
ONE_PASS_WIDTH = 128  # up to here a layer takes the one-pass kernel
BITEXACT_WIDTHS = (2048, 4096)
MOST_ROW_BYTES = 65536
MOST_CHANNELS = 1024

TABLE = Table(
    absent={
        "norm_tanh_mul_add": "sglang 0.5.23 has no such kernel; sglang@0.5.12.post1 has",
        "norm_tanh_mul_add_norm_scale": "sglang 0.5.23 has no such kernel; sglang@0.5.12.post1 has",
        "ernie_residual_gate": "sglang 0.5.23 runs the compiled expression",
        "broadcast_add": "sglang 0.5.23 runs the eager addition",
        "concat_sequence": "sglang 0.5.23 runs torch.cat",
        "copy_contiguous": "sglang 0.5.23 runs torch's contiguous()",
        "rms_modulate": "sglang 0.5.23 runs the eager chain under autocast; its fused kernel gives bf16, not float32",
        "dual_modulate": "sglang 0.5.23 runs the eager chain",
        "dual_modulate_from_table": "sglang 0.5.23 runs the eager chain",
    }
)


# Norm, scale and shift (CuTe-DSL)


def cute_width(signature: Signature) -> str | None:
    width = signature["x"].shape[-1]
    if width % WIDTH_STEP or width > MOST_WIDTH:
        return f"a width of {width}: it takes multiples of {WIDTH_STEP} up to {MOST_WIDTH}"
    return None


def cute_affine(signature: Signature) -> str | None:
    """Its layer norm silently ignores a weight without a bias; its RMS norm, any bias."""
    layer = signature.scalars["norm_type"] == "layer"
    if layer and ("weight" in signature) != ("bias" in signature):
        return "its layer norm takes weight and bias, or neither"
    if not layer and "bias" in signature:
        return "its RMS norm ignores a bias"
    return None


def dense(tensor: Tensor | None) -> Tensor | None:
    """As sglang's layers do with every argument."""
    return None if tensor is None else tensor.contiguous()


CUTE_KERNELS = "cutlass|ScaleResidualNormScaleShift|NormTanhMulAdd"  # CuTe-DSL names a kernel after its class
CUTE_OBJECTIONS = (dimensions(3, "x"), dtypes(*FLOATS, of=("x",)), cute_width, cute_affine)


@TABLE.add(
    "norm_scale_shift", f"{FACADE}:fused_norm_scale_shift", file=f"{FOLDER}/norm/scale_residual_norm_cutedsl.py",
    kernels=CUTE_KERNELS, objections=CUTE_OBJECTIONS, needs=(CUTEDSL,),
)  # fmt: skip
def norm_scale_shift(fused: Function) -> Function:
    def call(
        x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
        *, norm_type: str, eps: float,
    ) -> Any:  # fmt: skip
        return fused(dense(x), dense(weight), dense(bias), dense(scale), dense(shift), norm_type, eps)

    return call


@TABLE.add(
    "residual_norm_scale_shift", f"{FACADE}:fused_scale_residual_norm_scale_shift",
    file=f"{FOLDER}/norm/scale_residual_norm_cutedsl.py",
    kernels=CUTE_KERNELS, objections=CUTE_OBJECTIONS, needs=(CUTEDSL,),
)  # fmt: skip
def residual_norm_scale_shift(fused: Function) -> Function:
    def call(
        x: Tensor, residual: Tensor, scale: Tensor, shift: Tensor, gate: Tensor | None = None,
        weight: Tensor | None = None, bias: Tensor | None = None, *, norm_type: str, eps: float,
    ) -> Any:  # fmt: skip
        return fused(
            dense(residual), dense(x), dense(gate), dense(weight), dense(bias), dense(scale), dense(shift),
            norm_type, eps,
        )  # fmt: skip

    return call


# Norms


def row_fits(signature: Signature) -> str | None:
    row = signature["x"].shape[-1] * signature["x"].item_bytes
    return f"a row of {row} bytes: it takes less than {MOST_ROW_BYTES}" if row >= MOST_ROW_BYTES else None


@TABLE.add(
    "layer_norm", f"{FACADE}:norm_infer", file=f"{FOLDER}/norm/norm_triton.py", kernels="_norm_infer_kernel",
    objections=(row_fits,),
)  # fmt: skip
def layer_norm(norm_infer: Function) -> Function:
    def call(x: Tensor, weight: Tensor | None, bias: Tensor | None, *, eps: float) -> Any:
        return norm_infer(x.view(-1, x.shape[-1]), weight, bias, eps).view(x.shape)

    return call


def rms_width(signature: Signature) -> str | None:
    """Wider rows go to a compiled kernel; sglang's own build of it in place of the package sgl_kernel's."""
    width = signature["x"].shape[-1]
    fits = width <= ONE_PASS_WIDTH or width == 256 or (width % 256 == 0 and width <= 8192)
    if not fits and not (width % 512 == 0 and width <= 16384):
        return f"a width of {width}: it takes up to 128, and multiples of 256"
    if signature.capability is None and width > ONE_PASS_WIDTH:
        return "its kernel for wide rows runs on a GPU only"
    return None


@TABLE.add(
    "rms_norm", f"{FACADE}:triton_one_pass_rms_norm", "sglang.kernels.ops.layernorm.norm:rmsnorm",
    file=f"{FOLDER}/norm/rmsnorm_onepass_triton.py", kernels="_rms_norm_tiled_onepass|rmsnorm_(cta|warp)",
    objections=(dtypes(*HALVES, of=("x",)), same_dtype("x", "weight"), rms_width), interpreted=True,
)  # fmt: skip
def rms_norm(one_pass: Function, rmsnorm: Function) -> Function:
    def call(x: Tensor, weight: Tensor, *, eps: float) -> Any:
        width = x.shape[-1]
        if width <= ONE_PASS_WIDTH:
            return one_pass(x.reshape(-1, width), weight, eps).view(x.shape)
        rows = x.reshape(-1, width)
        y = torch.empty_like(rows)
        rmsnorm(rows, weight, y, eps)
        return y.view(x.shape)

    return call


def behind_residual(signature: Signature) -> str | None:
    """Its function for LayerNorms takes no residual, and the one for RMS norms returns no sum without one."""
    if signature.scalars["norm_type"] != "rms":
        return "it has RMS norms behind a residual, and no LayerNorm"
    if "residual" not in signature:
        return "without a residual it returns no sum"
    if "row_scale" in signature and "second" in signature:
        return "it takes a row scale or a second input"
    return None


@TABLE.add(
    "add_norm", f"{FACADE}:rms_norm_fn", file=f"{FOLDER}/norm/norm_triton.py", kernels="_layer_norm_fwd_1pass_kernel",
    objections=(behind_residual, row_fits), rounding="the norm is that of the sum before it is rounded",
)  # fmt: skip
def add_norm(rms_norm_fn: Function) -> Function:
    def call(
        x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, second: Tensor | None,
        row_scale: Tensor | None, *, norm_type: str, eps: float,
    ) -> Any:  # fmt: skip
        return rms_norm_fn(x, weight, bias, residual=residual, x1=second, eps=eps, rowscale=row_scale)

    return call


def fused_add_width(signature: Signature) -> str | None:
    width = signature["x"].shape[-1]
    if width % FUSED_ADD_STEP or width > MOST_WIDTH:
        return f"a width of {width}: it takes multiples of {FUSED_ADD_STEP} up to {MOST_WIDTH}"
    return None if "weight" in signature else "it needs a weight"


@TABLE.add(
    "fused_add_rms_norm_", "sglang.kernels.ops.layernorm.norm:fused_add_rmsnorm",
    file="sglang/kernels/ops/layernorm/norm.py", kernels="fused_add_rmsnorm_reg_kernel",
    objections=(
        dimensions(2, "x"), dtypes(*HALVES, of=("x",)), same_dtype("x", "residual", "weight"),
        contiguous("x", "residual"), fused_add_width,
    ),
    rounding="the mean square is that of the sum before it is rounded",
)  # fmt: skip
def fused_add_rms_norm_(fused: Function) -> Function:
    def call(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> None:
        fused(x, residual, weight, eps)

    return call


@TABLE.add(
    "group_norm_silu", f"{FACADE}:triton_group_norm_silu", file=f"{FOLDER}/norm/group_norm_silu_triton.py",
    kernels="_group_norm_(silu_contiguous|apply)",
    objections=(dtypes(*FLOATS, of=("x",)), same_dtype("x", "weight", "bias")),
)  # fmt: skip
def group_norm_silu(fused: Function) -> Function:
    def call(x: Tensor, weight: Tensor, bias: Tensor, *, num_groups: int, eps: float) -> Any:
        return fused(x, weight, bias, num_groups, eps)

    return call


def channels_last(signature: Signature) -> str | None:
    x = signature["x"]
    if len(x.shape) != 5 or x.strides[1] != 1:
        return "x must be 5-dimensional and channels-last"
    return f"{x.shape[1]} channels: it takes up to {MOST_CHANNELS}" if x.shape[1] > MOST_CHANNELS else None


@TABLE.add(
    "wan_rmsnorm_silu", f"{FACADE}:wan_rmsnorm_silu", file=f"{FOLDER}/norm/wan_rmsnorm_silu_triton.py",
    kernels="_wan_rmsnorm_silu_kernel", objections=(dtypes(*FLOATS, of=("x",)), channels_last),
)  # fmt: skip
def wan_rmsnorm_silu(fused: Function) -> Function:
    def call(x: Tensor, gamma: Tensor, bias: Tensor | None) -> Any:
        return fused(x, gamma, bias)

    return call


# Rotary embeddings


@TABLE.add(
    "rotary", f"{FACADE}:apply_rotary_embedding", file=f"{FOLDER}/rope/rotary_triton.py",
    kernels="_rotary_embedding_kernel", objections=(contiguous("x"),),
)  # fmt: skip
def rotary(apply: Function) -> Function:
    def call(x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        return apply(x, cos, sin)

    return call


@TABLE.add(
    "ltx2_split_rotary", f"{FACADE}:apply_ltx2_split_rotary_emb", file=f"{FOLDER}/rope/ltx2_rotary_triton.py",
    kernels="_ltx2_split_rotary_kernel", objections=(contiguous("x"),),
)  # fmt: skip
def ltx2_split_rotary(apply: Function) -> Function:
    def call(x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        return apply(x, cos, sin)

    return call


def rope_sizes(signature: Signature) -> str | None:
    head, rope = signature["q"].shape[-1], signature["cos_sin_cache"].shape[-1]
    if head not in (64, 128, 256):
        return f"heads of {head}: it takes 64, 128 and 256"
    lane = head // 32
    if not 0 < rope <= head or rope % lane or (signature.scalars["is_neox"] and (rope // lane) % 2):
        return f"a rotated part of {rope} in heads of {head}"
    return None


@TABLE.add(
    "qknorm_rope", f"{FACADE}:fused_inplace_qknorm_rope", file=f"{FOLDER}/rope/qknorm_rope_jit.py",
    kernels="fused_qknorm_rope", objections=(dtypes(*HALVES, of=("q", "k")), rope_sizes),
    rounding="the normed value is not rounded before it is rotated",
)  # fmt: skip
def qknorm_rope(fused: Function) -> Function:
    def call(
        q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin_cache: Tensor, positions: Tensor,
        *, eps: float, is_neox: bool,
    ) -> None:  # fmt: skip
        fused(
            q, k, q_weight, k_weight, cos_sin_cache, positions,
            is_neox=is_neox, eps=eps, head_dim=q.shape[-1], rope_dim=cos_sin_cache.shape[-1],
        )  # fmt: skip

    return call


@TABLE.add(
    "ltx2_qknorm_split_rope", f"{FACADE}:ltx2_qknorm_split_rope_cuda", file=f"{KDA}/ltx2_qknorm_split_rope_jit.py",
    kernels="ltx2_qknorm_split_rope_fused_kernel|ltx2_qknorm_split_rope_kernel",
    objections=(least_capability(9), dtypes("bf16", of=("q", "k", "q_cos", "k_cos")), contiguous("q", "k")),
    rounding="fused; on Hopper sglang takes it only where a request's quality allows that",
)  # fmt: skip
def ltx2_qknorm_split_rope(fused: Function) -> Function:
    def call(
        q: Tensor, k: Tensor, q_cos: Tensor, q_sin: Tensor, k_cos: Tensor, k_sin: Tensor,
        q_norm_weight: Tensor, k_norm_weight: Tensor, *, eps: float,
    ) -> Any:  # fmt: skip
        return fused(
            q, q_cos, q_sin, q_norm_weight, k, k_cos, k_sin, k_norm_weight,
            eps=eps, num_heads=q_cos.shape[1], head_dim=2 * q_cos.shape[3], allow_sm90=True,
        )  # fmt: skip

    return call


# Modulation


def frame_modulation(signature: Signature) -> str | None:
    """A scale per frame goes with a shift per token; a shift per frame is for other devices."""
    if len(signature["shift"].shape) == 4:
        return "a shift per frame: on NVIDIA it takes one per token"
    return None


@TABLE.add(
    "scale_shift", f"{FACADE}:fuse_scale_shift_kernel", file=f"{FOLDER}/modulate/scale_shift_triton.py",
    kernels="fuse_scale_shift_kernel_blc_opt|_fused_scale_shift_4d_kernel",
    objections=(dimensions(3, "x"), contiguous("x"), frame_modulation),
)  # fmt: skip
def scale_shift(fused: Function) -> Function:
    def call(x: Tensor, scale: Tensor, shift: Tensor, *, scale_constant: float) -> Any:
        return fused(x, scale, shift, scale_constant=scale_constant)

    return call


SELECT = (
    dimensions(3, "x"), contiguous("x", "residual", "residual_gate"),
    dimensions(2, "scale0", "shift0", "gate0", "scale1", "shift1", "gate1", "index"), row_fits,
)  # fmt: skip


@TABLE.add(
    "norm_scale_shift_select", f"{FACADE}:fuse_layernorm_scale_shift_gate_select01_kernel",
    file=f"{FOLDER}/modulate/scale_shift_triton.py", kernels="_fused_layernorm_scale_shift_gate_select01_kernel",
    objections=SELECT,
)  # fmt: skip
def norm_scale_shift_select(fused: Function) -> Function:
    def call(
        x: Tensor, scale0: Tensor, shift0: Tensor, gate0: Tensor, scale1: Tensor, shift1: Tensor, gate1: Tensor,
        index: Tensor, weight: Tensor | None, bias: Tensor | None, *, eps: float,
    ) -> Any:  # fmt: skip
        return fused(
            x, weight=weight, bias=bias, scale0=scale0.contiguous(), shift0=shift0.contiguous(),
            gate0=gate0.contiguous(), scale1=scale1.contiguous(), shift1=shift1.contiguous(),
            gate1=gate1.contiguous(), index=index.contiguous(), eps=eps,
        )  # fmt: skip

    return call


@TABLE.add(
    "residual_norm_scale_shift_select", f"{FACADE}:fuse_residual_layernorm_scale_shift_gate_select01_kernel",
    file=f"{FOLDER}/modulate/scale_shift_triton.py",
    kernels="_fused_residual_layernorm_scale_shift_gate_select01_kernel", objections=SELECT,
    rounding="the statistics are those of the sum before it is rounded",
)  # fmt: skip
def residual_norm_scale_shift_select(fused: Function) -> Function:
    def call(
        x: Tensor, residual: Tensor, residual_gate: Tensor, scale0: Tensor, shift0: Tensor, gate0: Tensor,
        scale1: Tensor, shift1: Tensor, gate1: Tensor, index: Tensor, weight: Tensor | None, bias: Tensor | None,
        *, eps: float,
    ) -> Any:  # fmt: skip
        return fused(
            x, residual=residual, residual_gate=residual_gate, weight=weight, bias=bias, scale0=scale0.contiguous(),
            shift0=shift0.contiguous(), gate0=gate0.contiguous(), scale1=scale1.contiguous(),
            shift1=shift1.contiguous(), gate1=gate1.contiguous(), index=index.contiguous(), eps=eps,
        )  # fmt: skip

    return call


def gate_shape(signature: Signature) -> str | None:
    """Anything else takes the eager chain inside the same function."""
    residual, gate = signature["residual"].shape, signature["gate"].shape
    rows = (*[1] * (len(residual) - 1), residual[-1])
    per_batch = (residual[0], 1, residual[-1])
    if gate in (residual, rows, per_batch, (*residual[:-1], 1)):
        return None
    return f"a gate of {list(gate)} for a residual of {list(residual)}"


@TABLE.add(
    "residual_gate", f"{FACADE}:residual_gate_add", file=f"{KDA}/residual_gate_add_jit.py",
    kernels="residual_gate_add_|_rga_transposed",
    objections=(
        dtypes(*HALVES, of=("residual",)), same_dtype("residual", "update", "gate"), contiguous("residual", "update"),
        gate_shape,
    ),
)  # fmt: skip
def residual_gate(fused: Function) -> Function:
    def call(residual: Tensor, update: Tensor, gate: Tensor) -> Any:
        return fused(residual, update, gate)

    return call


def bitexact_rows(*rows: str) -> Any:
    def objection(signature: Signature) -> str | None:
        x = signature["x"] if "x" in signature else signature["residual"]
        if x.shape[-1] not in BITEXACT_WIDTHS:
            return f"a width of {x.shape[-1]}: it takes {' and '.join(map(str, BITEXACT_WIDTHS))}"
        wrong = [name for name in rows if signature[name].shape != (x.shape[0], 1, x.shape[-1])]
        return f"{wrong[0]} must be one row a batch" if wrong else None

    return objection


@TABLE.add(
    "ernie_norm_modulate", f"{FACADE}:fused_rmsnorm_scale_shift_bitexact",
    file=f"{FOLDER}/norm/rmsnorm_scale_shift_bitexact.py", kernels="_rmsnorm_scale_shift_kernel",
    objections=(
        dimensions(3, "x"), dtypes("bf16", of=("x", "weight", "scale", "shift")), contiguous("x", "scale", "shift"),
        bitexact_rows("scale", "shift"),
    ),
    rounding="every step rounds, as in the chain of single kernels that it repeats",
)  # fmt: skip
def ernie_norm_modulate(fused: Function) -> Function:
    def call(x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, *, eps: float) -> Any:
        return fused(x, weight, scale, shift, eps)

    return call


@TABLE.add(
    "ernie_residual_norm_modulate", f"{FACADE}:fused_scale_residual_rmsnorm_scale_shift_bitexact",
    file=f"{FOLDER}/norm/rmsnorm_scale_shift_bitexact.py", kernels="_rmsnorm_scale_shift_kernel",
    objections=(
        dimensions(3, "residual"), dtypes("bf16", of=("residual", "update", "gate", "weight", "scale", "shift")),
        contiguous("residual", "update", "gate", "scale", "shift"), bitexact_rows("gate", "scale", "shift"),
    ),
    rounding="every step rounds, as in the chain of single kernels that it repeats",
)  # fmt: skip
def ernie_residual_norm_modulate(fused: Function) -> Function:
    def call(
        residual: Tensor, update: Tensor, gate: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, *, eps: float
    ) -> Any:
        y, residual_out = fused(residual, update, gate, weight, scale, shift, eps)
        return residual_out, y

    return call


# Layout


def padded_size(signature: Signature) -> str | None:
    """The launcher writes 16 bytes at a time, and pads the left of the depth only where the cache leaves room."""
    if "cache" not in signature:
        return "no cache: its layer pads alone then"
    x, cache = signature["x"], signature["cache"]
    width, height, depth = (int(signature.scalars[name]) for name in ("pad_w", "pad_h", "pad_t"))
    if depth < cache.shape[2]:
        return f"a cache of {cache.shape[2]} frames for a padding of {depth}"
    elements = x.shape[0] * x.shape[1] * (x.shape[2] + depth) * (x.shape[3] + 2 * height) * (x.shape[4] + 2 * width)
    return "its output is no multiple of 16 bytes" if elements * x.item_bytes % 16 else None


@TABLE.add(
    "causal_cat_pad", f"{FACADE}:fused_causal_conv3d_cat_pad_cuda", file=f"{KDA}/causal_conv3d_cat_pad_jit.py",
    kernels="cat_pad_flat_kernel",
    objections=(dimensions(5, "x", "cache"), dtypes(*FLOATS, of=("x",)), contiguous("x", "cache"), padded_size),
)  # fmt: skip
def causal_cat_pad(fused: Function) -> Function:
    def call(x: Tensor, cache: Tensor, *, pad_w: int, pad_h: int, pad_t: int) -> Any:
        return fused(x, cache, (pad_w, pad_w, pad_h, pad_h, pad_t, 0))

    return call
