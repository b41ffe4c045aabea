"""Modules over kernwright.ops: norms and modulations of diffusion transformers, for inference.

    from kernwright import nn

    norm = nn.LayerNormScaleShift(3072)
    with torch.no_grad():
        y = norm(x, shift, scale)  # LayerNorm(x) * (1 + scale) + shift

The modules take their arguments in the order in which models pass them: shift before scale, and the residual before x.
The functions of `kernwright.ops` take scale before shift, and x before the residual.

Where gradients are recorded, the differentiable reference runs instead of a kernel, and the module warns of that once
per class (`kernwright.Fallback`).
"""

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
