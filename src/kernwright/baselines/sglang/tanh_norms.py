"""Adapters of the norms of sglang 0.5.23 behind a tanh gate, as in Z-Image.

Older versions had one kernel for both norms.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernwright.baselines.adapter import Function, Objection, Signature, Table, contiguous, dtypes
from kernwright.baselines.sglang import package as its

MOST_WIDTH = 8192

TABLE = Table()


def operands(signature: Signature) -> str | None:
    if signature.scalars["norm_type"] != "rms":
        return "it has an RMS norm behind a tanh gate, and no LayerNorm"
    if "bias" in signature or "bias2" in signature:
        return "its RMS norm takes no bias"
    if "weight" not in signature or ("scale2" in signature and "weight2" not in signature):
        return "its RMS norm needs a weight"
    if (width := signature["x"].shape[-1]) > MOST_WIDTH:
        return f"a width of {width}: it takes up to {MOST_WIDTH}"
    if signature["shift"].shape != signature["x"].shape:
        return "what it adds must have x's shape"
    return None


def one_step_between_rows(*names: str) -> Objection:
    """Decline tensors whose rows are not one step apart: the kernel reads them as the rows of one matrix."""

    def objection(signature: Signature) -> str | None:
        for name in (name for name in names if name in signature):
            own = signature[name]
            if len(own.shape) < 2 or own.shape[-1] != signature["x"].shape[-1]:
                return f"{name} has shape {list(own.shape)}: it takes rows as wide as x, in two dimensions or more"
            if own.strides[-1] != 1:
                return f"{name}'s last dimension must be contiguous"
            step = own.strides[-2]
            for size, outer in zip(reversed(own.shape[1:-1]), reversed(own.strides[:-2]), strict=True):
                step *= size
                if outer != step:
                    return f"{name}'s rows must lie one step apart"
        return None

    return objection


OBJECTIONS = (
    operands, dtypes("bf16", of=("x", "scale", "shift", "scale2", "weight", "weight2")),
    contiguous("weight", "weight2"), one_step_between_rows("x", "scale", "shift", "scale2"),
)  # fmt: skip
FILE = f"{its.FOLDER}/norm/native_bf16_rmsnorm_triton.py"
ROUNDING = "every step rounds, the mean of the squares included"


@TABLE.add(
    "norm_tanh_mul_add", f"{its.FACADE}:rmsnorm_tanh_residual", file=FILE, kernels="_rmsnorm_tanh_residual_kernel",
    objections=OBJECTIONS, rounding=ROUNDING,
)  # fmt: skip
def norm_tanh_mul_add(gated: Function) -> Function:
    def call(
        x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, bias: None = None, *, norm_type: str, eps: float
    ) -> Any:
        return gated(x, scale, shift, weight, eps)

    return call


@TABLE.add(
    "norm_tanh_mul_add_norm_scale", f"{its.FACADE}:rmsnorm_tanh_residual", f"{its.FACADE}:rmsnorm_scale", file=FILE,
    kernels="_rmsnorm_tanh_residual_kernel", objections=OBJECTIONS, rounding=ROUNDING,
)  # fmt: skip
def norm_tanh_mul_add_norm_scale(gated: Function, scaled: Function) -> Function:
    def call(
        x: Tensor, scale: Tensor, shift: Tensor, scale2: Tensor, weight: Tensor, bias: None = None,
        weight2: Tensor | None = None, bias2: None = None, *, norm_type: str, eps: float,
    ) -> Any:  # fmt: skip
        y = gated(x, scale, shift, weight, eps)
        return y, scaled(y, weight2, 1 + scale2, eps)  # the kernel takes 1 + scale, which the model computes as well

    return call
