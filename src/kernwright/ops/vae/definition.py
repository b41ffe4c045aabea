"""Norm and SiLU of the video autoencoders: group norm (HunyuanVideo, LTX-2), and the RMS norm over channels of Wan."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import define


@define(outputs=["y"], activations=["x"])
def group_norm_silu(x: Tensor, weight: Tensor, bias: Tensor, *, num_groups: int = 32, eps: float = 1e-6) -> Tensor:
    """silu(group_norm(x)), contiguous however x lies in memory; the norm's output rounds before the activation"""
    return F.silu(F.group_norm(x, num_groups, weight, bias, eps)).contiguous()


@define(outputs=["y"], activations=["x"])
def wan_rmsnorm_silu(x: Tensor, gamma: Tensor, bias: Tensor | None = None) -> Tensor:
    """silu(x / |x over channels| * sqrt(C) * gamma + bias), each step rounded, in x's own memory format"""
    normed = F.normalize(x, dim=1) * x.shape[1] ** 0.5 * gamma
    return F.silu(normed if bias is None else normed + bias)
