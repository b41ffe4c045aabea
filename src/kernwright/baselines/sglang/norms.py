"""Adapters of the norms of sglang 0.5.23: plain, modulated, and behind a residual."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernwright.baselines.adapter import Function, Signature, Table, contiguous, dimensions, dtypes, same_dtype
from kernwright.baselines.lock import CUTEDSL
from kernwright.baselines.sglang import package as its

MOST_WIDTH, WIDTH_STEP = 8192, 256
FUSED_ADD_STEP = 16
ONE_PASS_WIDTH = 128  # up to this width a layer calls the one-pass kernel
BITEXACT_WIDTHS = (2048, 4096)
MOST_ROW_BYTES = 65536
MOST_CHANNELS = 1024

TABLE = Table()


def cute_width(signature: Signature) -> str | None:
    width = signature["x"].shape[-1]
    if width % WIDTH_STEP or width > MOST_WIDTH:
        return f"a width of {width}: it takes multiples of {WIDTH_STEP} up to {MOST_WIDTH}"
    return None


def cute_affine(signature: Signature) -> str | None:
    """Decline affine parameters that sglang silently ignores.

    Its layer norm ignores a weight without a bias, and its RMS norm ignores any bias.
    """
    layer = signature.scalars["norm_type"] == "layer"
    if layer and ("weight" in signature) != ("bias" in signature):
        return "its layer norm takes weight and bias, or neither"
    if not layer and "bias" in signature:
        return "its RMS norm ignores a bias"
    return None


def dense(tensor: Tensor | None) -> Tensor | None:
    """Return a contiguous tensor, because sglang's layers make every argument contiguous."""
    return None if tensor is None else tensor.contiguous()


CUTE_KERNELS = "cutlass|ScaleResidualNormScaleShift|NormTanhMulAdd"  # CuTe-DSL names a kernel after its class
CUTE_OBJECTIONS = (dimensions(3, "x"), dtypes(*its.FLOATS, of=("x",)), cute_width, cute_affine)


@TABLE.add(
    "norm_scale_shift", f"{its.FACADE}:fused_norm_scale_shift",
    file=f"{its.FOLDER}/norm/scale_residual_norm_cutedsl.py",
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
    "residual_norm_scale_shift", f"{its.FACADE}:fused_scale_residual_norm_scale_shift",
    file=f"{its.FOLDER}/norm/scale_residual_norm_cutedsl.py",
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


def row_fits(signature: Signature) -> str | None:
    row = signature["x"].shape[-1] * signature["x"].item_bytes
    return f"a row of {row} bytes: it takes less than {MOST_ROW_BYTES}" if row >= MOST_ROW_BYTES else None


@TABLE.add(
    "layer_norm", f"{its.FACADE}:norm_infer", file=f"{its.FOLDER}/norm/norm_triton.py", kernels="_norm_infer_kernel",
    objections=(row_fits,),
)  # fmt: skip
def layer_norm(norm_infer: Function) -> Function:
    def call(x: Tensor, weight: Tensor | None, bias: Tensor | None, *, eps: float) -> Any:
        return norm_infer(x.view(-1, x.shape[-1]), weight, bias, eps).view(x.shape)

    return call


def rms_width(signature: Signature) -> str | None:
    """Decline widths that no kernel takes.

    Rows wider than ONE_PASS_WIDTH run a compiled kernel. It is the one that sglang builds, not the one of the package
    sgl_kernel.
    """
    width = signature["x"].shape[-1]
    fits = width <= ONE_PASS_WIDTH or width == 256 or (width % 256 == 0 and width <= 8192)
    if not fits and not (width % 512 == 0 and width <= 16384):
        return f"a width of {width}: it takes up to 128, and multiples of 256"
    if signature.capability is None and width > ONE_PASS_WIDTH:
        return "its kernel for wide rows runs on a GPU only"
    return None


@TABLE.add(
    "rms_norm", f"{its.FACADE}:triton_one_pass_rms_norm", "sglang.kernels.ops.layernorm.norm:rmsnorm",
    file=f"{its.FOLDER}/norm/rmsnorm_onepass_triton.py", kernels="_rms_norm_tiled_onepass|rmsnorm_(cta|warp)",
    objections=(dtypes(*its.HALVES, of=("x",)), same_dtype("x", "weight"), rms_width), interpreted=True,
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
    """Decline calls that have no function in sglang.

    The function for LayerNorms takes no residual. The one for RMS norms returns no sum if there is no residual.
    """
    if signature.scalars["norm_type"] != "rms":
        return "it has RMS norms behind a residual, and no LayerNorm"
    if "residual" not in signature:
        return "without a residual it returns no sum"
    if "row_scale" in signature and "second" in signature:
        return "it takes a row scale or a second input"
    return None


@TABLE.add(
    "add_norm", f"{its.FACADE}:rms_norm_fn", file=f"{its.FOLDER}/norm/norm_triton.py",
    kernels="_layer_norm_fwd_1pass_kernel", objections=(behind_residual, row_fits),
    rounding="the norm is that of the sum before it is rounded",
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
        dimensions(2, "x"), dtypes(*its.HALVES, of=("x",)), same_dtype("x", "residual", "weight"),
        contiguous("x", "residual"), fused_add_width,
    ),
    rounding="the mean square is that of the sum before it is rounded",
)  # fmt: skip
def fused_add_rms_norm_(fused: Function) -> Function:
    def call(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> None:
        fused(x, residual, weight, eps)

    return call


@TABLE.add(
    "group_norm_silu", f"{its.FACADE}:triton_group_norm_silu", file=f"{its.FOLDER}/norm/group_norm_silu_triton.py",
    kernels="_group_norm_(silu_contiguous|apply)",
    objections=(dtypes(*its.FLOATS, of=("x",)), same_dtype("x", "weight", "bias")),
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
    "wan_rmsnorm_silu", f"{its.FACADE}:wan_rmsnorm_silu", file=f"{its.FOLDER}/norm/wan_rmsnorm_silu_triton.py",
    kernels="_wan_rmsnorm_silu_kernel", objections=(dtypes(*its.FLOATS, of=("x",)), channels_last),
)  # fmt: skip
def wan_rmsnorm_silu(fused: Function) -> Function:
    def call(x: Tensor, gamma: Tensor, bias: Tensor | None) -> Any:
        return fused(x, gamma, bias)

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
    "ernie_norm_modulate", f"{its.FACADE}:fused_rmsnorm_scale_shift_bitexact",
    file=f"{its.FOLDER}/norm/rmsnorm_scale_shift_bitexact.py", kernels="_rmsnorm_scale_shift_kernel",
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
    "ernie_residual_norm_modulate", f"{its.FACADE}:fused_scale_residual_rmsnorm_scale_shift_bitexact",
    file=f"{its.FOLDER}/norm/rmsnorm_scale_shift_bitexact.py", kernels="_rmsnorm_scale_shift_kernel",
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
