"""Modules over kernwright.ops: the norms of diffusion transformers, plain and adaptive, fused where a kernel fits."""

from kernwright.nn.norm_modulation import (
    LayerNormScaleShift,
    RMSNormScaleShift,
    ScaleResidualLayerNormScaleShift,
    ScaleResidualRMSNormScaleShift,
)
from kernwright.nn.plain_norm import LayerNorm, RMSNorm

__all__ = [
    "LayerNorm",
    "LayerNormScaleShift",
    "RMSNorm",
    "RMSNormScaleShift",
    "ScaleResidualLayerNormScaleShift",
    "ScaleResidualRMSNormScaleShift",
]
