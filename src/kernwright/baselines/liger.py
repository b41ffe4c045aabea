"""Adapters of the norms of Liger-Kernel 0.8.5. They are made for training, so a call also writes row statistics."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernwright.baselines.adapter import Function, Signature, Table, contiguous, same_dtype

FUNCTIONAL = "liger_kernel.transformers.functional"
MOST_ROW = 65536  # elements: one block of a Triton program

TABLE = Table()


def affine(signature: Signature) -> str | None:
    missing = [name for name in ("weight", "bias") if name not in signature]
    return f"its layer norm needs a {missing[0]}" if missing else None


def row_fits(signature: Signature) -> str | None:
    width = signature["x"].shape[-1]
    return f"a width of {width}: it takes up to {MOST_ROW}" if width > MOST_ROW else None


@TABLE.add(
    "layer_norm", f"{FUNCTIONAL}:liger_layer_norm", file="liger_kernel/ops/layer_norm.py",
    kernels="_layer_norm_forward_kernel", objections=(affine, row_fits),
)  # fmt: skip
def layer_norm(fused: Function) -> Function:
    def call(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Any:
        return fused(x, weight, bias, eps)

    return call


@TABLE.add(
    "rms_norm", f"{FUNCTIONAL}:liger_rms_norm", file="liger_kernel/ops/rms_norm.py", kernels="_rms_norm_forward_kernel",
    objections=(row_fits,), rounding="as Llama: the normed value is rounded to x's dtype before the weight",
)  # fmt: skip
def rms_norm(fused: Function) -> Function:
    def call(x: Tensor, weight: Tensor, *, eps: float) -> Any:
        return fused(x, weight, eps)

    return call


def sum_of_two(signature: Signature) -> str | None:
    """Decline everything but an RMS norm with a weight over the sum of x and a residual."""
    if signature.scalars["norm_type"] != "rms":
        return "it has RMS norms behind a residual, and no LayerNorm"
    if missing := [name for name in ("residual", "weight") if name not in signature]:
        return f"it needs a {missing[0]}"
    more = [name for name in ("bias", "second", "row_scale") if name in signature]
    return f"it takes no {more[0]}" if more else None


@TABLE.add(
    "add_norm", f"{FUNCTIONAL}:liger_fused_add_rms_norm", file="liger_kernel/ops/fused_add_rms_norm.py",
    kernels="_fused_add_rms_norm_forward_kernel", objections=(sum_of_two, row_fits, same_dtype("x", "residual")),
    rounding="as Llama: the normed value is rounded to x's dtype before the weight",
)  # fmt: skip
def add_norm(fused: Function) -> Function:
    def call(
        x: Tensor, residual: Tensor, weight: Tensor, bias: None, second: None, row_scale: None,
        *, norm_type: str, eps: float,
    ) -> Any:  # fmt: skip
        return fused(x, residual, weight, eps)

    return call


def whole_rows(signature: Signature) -> str | None:
    x = signature["x"]
    for name in ("scale", "shift"):
        if len(signature[name].shape) != 3 or signature[name].shape[:2] not in ((x.shape[0], 1), x.shape[:2], (1, 1)):
            return f"{name} must have one row a batch or a token"
    return None


@TABLE.add(
    "ernie_norm_modulate", f"{FUNCTIONAL}:liger_modulated_rms_norm", file="liger_kernel/ops/modulated_rms_norm.py",
    kernels="_modulated_rms_norm_forward_kernel",
    objections=(row_fits, whole_rows, same_dtype("x", "scale", "shift"), contiguous("x", "scale", "shift")),
    rounding="as Llama: the normed value is rounded to x's dtype before the weight",
)  # fmt: skip
def ernie_norm_modulate(fused: Function) -> Function:
    def call(x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, *, eps: float) -> Any:
        return fused(x, weight, scale, shift, eps)

    return call
