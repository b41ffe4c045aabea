"""Norms with a residual, as blocks run them: the sum is the next residual, and its norm goes into the layer.

Inputs and results are those of the fused calls that decoders make (`rms_norm_fn` of flash-attn and sglang,
`fused_add_rmsnorm` of vLLM and sglang): a row scale of x, a second input, a residual in another dtype, a bias of an RMS
norm, and both results. Rounding is the eager chain's: each sum in its own dtype. The input of the norm is the sum as it
is returned, whereas those calls norm the unrounded sum.

These inputs of such calls are left out: dropout and its masks, which are for training; a second weight and bias, whose
result `rms_norm_fn` computes and does not return; a weight to which one is added, because `weight + 1` does the same;
and another dtype of y than x's. In those calls a row scale and a second input exclude each other. Here the row scale
applies to x alone.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import wide


def _normed(total: Tensor, weight: Tensor | None, bias: Tensor | None, norm_type: str, eps: float) -> Tensor:
    """Return the norm in the sum's dtype if the affine has it too, as torch's modules do; otherwise in float32."""
    if any(own is not None and own.dtype != total.dtype for own in (weight, bias)):
        total = wide(total)
        weight, bias = (None if own is None else own.to(total.dtype) for own in (weight, bias))
    width = total.shape[-1:]
    if norm_type == "layer":
        return F.layer_norm(total, width, weight, bias, eps)
    if norm_type != "rms":
        raise ValueError(f"norm_type is 'layer' or 'rms', not {norm_type!r}")
    normed = F.rms_norm(total, width, weight, eps)
    return normed if bias is None else normed + bias


@define(outputs=["y", "residual_out"], activations=["x", "residual", "second"])
def add_norm(
    x: Tensor,
    residual: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    second: Tensor | None = None,
    row_scale: Tensor | None = None,
    *,
    norm_type: str = "rms",
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """Return `norm(r) * weight + bias` and r, where `r = x * row_scale + second + residual`.

    Arguments:
        x: any number of axes; the norm is over the last one.
        residual, second: the shape of x, in any floating point dtype. Each may be omitted.
        row_scale: one number per row of x, or omitted.
        weight, bias: `[D]`, in any floating point dtype.
        norm_type: "rms" or "layer".
        eps: the number added to the variance.
        residual_in_fp32: whether r is float32 where there is no residual. Otherwise r has the dtype of the residual, or
            that of x if there is none.
    """
    total = x if row_scale is None else x * row_scale[..., None]
    if second is not None:
        total = total + second
    if residual is not None:
        total = total + residual
    # The sum of x alone is a separate tensor, too.
    total = total.to(x.dtype if residual is None else residual.dtype, copy=total is x)
    return _normed(total, weight, bias, norm_type, eps).to(x.dtype), total


@define(outputs=[], activations=["x", "residual"], inplace=["x", "residual"])
def fused_add_rms_norm_(x: Tensor, residual: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6) -> None:
    """Add x to residual, then set x to `rms_norm(residual) * weight`. Both are changed in place.

    Arguments:
        x, residual: tensors of one shape. They must not overlap each other in part, nor the weight. One tensor as both
            holds the norm afterwards.
        weight: `[D]`, or omitted.
        eps: the number added to the mean of squares.
    """
    residual += x
    x.copy_(_normed(residual, weight, None, "rms", eps))
