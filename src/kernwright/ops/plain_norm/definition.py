"""LayerNorm and RMSNorm over the last axis, as the modules run them: statistics in float32, one rounding."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import wide


@define(outputs=["y"], activations=["x"])
def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-6) -> Tensor:
    """Return `(x - mean(x)) * rsqrt(var(x) + eps) * weight + bias` over the last axis of x.

    Arguments:
        x: any number of axes.
        weight, bias: `[D]`, in any floating point dtype. Either may be omitted.
        eps: the number added to the variance.

    The result has the memory layout of x. With `contract="exact"` torch's own norm runs.
    """
    if (weight is None or weight.dtype == x.dtype) and (bias is None or bias.dtype == x.dtype):
        return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)
    # With an affine in another dtype, which torch does not support everywhere, the layer runs in float32 and rounds
    # once.
    weight, bias = (None if own is None else own.to(wide(x).dtype) for own in (weight, bias))
    return F.layer_norm(wide(x), (x.shape[-1],), weight, bias, eps).to(x.dtype)


@define(outputs=["y"], activations=["x"])
def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6) -> Tensor:
    """Return `x * rsqrt(mean(x ** 2) + eps) * weight` over the last axis of x.

    Arguments:
        x: any number of axes.
        weight: `[D]`, in any floating point dtype, or omitted.
        eps: the number added to the mean of squares.

    The result has the memory layout of x. With `contract="exact"` torch's own functions run.
    """
    return F.rms_norm(x, (x.shape[-1],), weight, eps)
