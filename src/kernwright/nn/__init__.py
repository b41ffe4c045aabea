"""Modules over kernwright.ops: the adaptive norms of diffusion transformers, fused where a kernel fits."""

from kernwright.nn.norm_modulation import (
    LayerNormScaleShift,
    RMSNormScaleShift,
    ScaleResidualLayerNormScaleShift,
    ScaleResidualRMSNormScaleShift,
)

__all__ = [
    "LayerNormScaleShift",
    "RMSNormScaleShift",
    "ScaleResidualLayerNormScaleShift",
    "ScaleResidualRMSNormScaleShift",
]
