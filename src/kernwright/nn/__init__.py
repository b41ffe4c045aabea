"""Modules over kernwright.ops: norms and modulations of diffusion transformers, fused where a kernel fits."""

from kernwright.nn.modulation import MulAdd
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
    "MulAdd",
    "RMSNorm",
    "RMSNormScaleShift",
    "ScaleResidualLayerNormScaleShift",
    "ScaleResidualRMSNormScaleShift",
]
