"""Modules over kernwright.ops: adaptive norms and modulations of diffusion transformers, fused where a kernel fits."""

from kernwright.nn.modulation import MulAdd
from kernwright.nn.norm_modulation import (
    LayerNormScaleShift,
    RMSNormScaleShift,
    ScaleResidualLayerNormScaleShift,
    ScaleResidualRMSNormScaleShift,
)

__all__ = [
    "LayerNormScaleShift",
    "MulAdd",
    "RMSNormScaleShift",
    "ScaleResidualLayerNormScaleShift",
    "ScaleResidualRMSNormScaleShift",
]
