"""Norm and SiLU of the video autoencoders: group norm (HunyuanVideo, LTX-2), and the RMS norm over channels of Wan."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import define


@define(outputs=["y"], activations=["x"])
def group_norm_silu(x: Tensor, weight: Tensor, bias: Tensor, *, num_groups: int = 32, eps: float = 1e-6) -> Tensor:
    """Return `silu(group_norm(x))` as a contiguous tensor. The output of the norm rounds before the activation.

    Arguments:
        x: `[B, C, ...]`, in any memory format.
        weight, bias: `[C]`.
        num_groups: the number of groups, which divides C.
        eps: the number added to the variance.
    """
    return F.silu(F.group_norm(x, num_groups, weight, bias, eps)).contiguous()


@define(outputs=["y"], activations=["x"])
def wan_rmsnorm_silu(x: Tensor, gamma: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `silu(x / norm(x, axis 1) * sqrt(C) * gamma + bias)` in the memory format of x. Each step rounds.

    Arguments:
        x: `[B, C, ...]`.
        gamma, bias: they broadcast over x, for example as `[C, 1, 1, 1]`. The bias may be omitted.
    """
    normed = F.normalize(x, dim=1) * x.shape[1] ** 0.5 * gamma
    return F.silu(normed if bias is None else normed + bias)
