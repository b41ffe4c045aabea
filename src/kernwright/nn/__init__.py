"""Modules over kernwright.ops: norms and modulations of diffusion transformers, fused where a kernel fits."""

from kernwright.nn.modulation import MulAdd
from kernwright.nn.norm_modulation import (
    LayerNormScaleShift,
    LayerNormScaleShiftSelect,
    RMSNormScaleShift,
    ScaleResidualLayerNormScaleShift,
    ScaleResidualLayerNormScaleShiftSelect,
    ScaleResidualRMSNormScaleShift,
)
from kernwright.nn.plain_norm import LayerNorm, RMSNorm

__all__ = [
    "LayerNorm",
    "LayerNormScaleShift",
    "LayerNormScaleShiftSelect",
    "MulAdd",
    "RMSNorm",
    "RMSNormScaleShift",
    "ScaleResidualLayerNormScaleShift",
    "ScaleResidualLayerNormScaleShiftSelect",
    "ScaleResidualRMSNormScaleShift",
]
