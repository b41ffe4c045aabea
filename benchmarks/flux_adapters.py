"""Adapters for `kernwright run --swap`: the adaptive norms of FLUX.1 in diffusers, with our op instead of the chain.

Each has the parameters of the `forward` that it replaces. A norm of another type, or with weights, is left to the
original.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import LayerNorm

from kernwright import ops


def zero(
    self: Any,
    x: Tensor,
    timestep: Tensor | None = None,
    class_labels: Tensor | None = None,
    hidden_dtype: Any = None,
    emb: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """AdaLayerNormZero"""
    if self.emb is not None:
        emb = self.emb(timestep, class_labels, hidden_dtype=hidden_dtype)
    shift, scale, *rest = self.linear(self.silu(emb)).chunk(6, dim=1)
    gate, shift_mlp, scale_mlp, gate_mlp = rest
    return modulated(self, x, scale, shift), gate, shift_mlp, scale_mlp, gate_mlp


def single(self: Any, x: Tensor, emb: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """AdaLayerNormZeroSingle"""
    shift, scale, gate = self.linear(self.silu(emb)).chunk(3, dim=1)
    return modulated(self, x, scale, shift), gate


def continuous(self: Any, x: Tensor, conditioning_embedding: Tensor) -> Tensor:
    """AdaLayerNormContinuous"""
    scale, shift = self.linear(self.silu(conditioning_embedding).to(x.dtype)).chunk(2, dim=1)
    return modulated(self, x, scale, shift)


def modulated(module: Any, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    norm = module.norm
    if not isinstance(norm, LayerNorm) or norm.weight is not None:
        raise NotImplementedError(f"the norm is a {type(norm).__name__}, or has weights")
    return ops.norm_scale_shift(x, scale, shift, eps=norm.eps)
