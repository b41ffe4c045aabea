"""Norm, scale and shift as modules. Their parameters lie under `norm`, named as torch.nn.LayerNorm and RMSNorm name
theirs, so that a checkpoint of a block that held such a norm loads as it is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kernwright import ops
from kernwright.nn.rows import check_rows
from kernwright.runtime.call import BadArgument

# What the ops call otherwise.
NAMES = {"residual_gate": "gate", "weight": "norm.weight", "bias": "norm.bias"}


class _Affine(nn.Module):
    """What a norm learns, if anything: the state dict of torch's own module, without its forward."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self, width: int, weight: bool, bias: bool, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, device=device, dtype=dtype)) if weight else None
        self.bias = nn.Parameter(torch.empty(width, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch's norms have it, for whoever makes modules on no device and fills them later."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class _NormScaleShift(nn.Module):
    norm_type: str

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        elementwise_affine: bool = False,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size, self.eps = hidden_size, eps
        has_bias = elementwise_affine and bias and self.norm_type == "layer"
        self.norm = _Affine(hidden_size, elementwise_affine, has_bias, device, dtype)

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.eps}, elementwise_affine={self.norm.weight is not None}"


class _Plain(_NormScaleShift):
    def forward(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """norm(x) * (1 + scale) + shift; shift comes first, as models call it"""
        check_rows("x", x, self.hidden_size)
        try:
            return ops.norm_scale_shift(
                x, scale, shift, self.norm.weight, self.norm.bias, norm_type=self.norm_type, eps=self.eps
            )
        except BadArgument as wrong:
            raise wrong.renamed(NAMES) from None


class _BehindResidual(_NormScaleShift):
    def forward(
        self, residual: Tensor, x: Tensor, gate: Tensor | float | None, shift: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        """r = residual + gate * x (gate 1 or None: residual + x); returns norm(r) * (1 + scale) + shift, and r"""
        if isinstance(gate, (int, float)):
            if gate != 1:
                raise BadArgument("gate", f"is the number {gate}; it is a tensor, 1 or None")
            gate = None
        check_rows("x", x, self.hidden_size)
        affine = self.norm.weight, self.norm.bias
        try:
            return ops.residual_norm_scale_shift(
                x, residual, scale, shift, gate, *affine, norm_type=self.norm_type, eps=self.eps
            )
        except BadArgument as wrong:
            raise wrong.renamed(NAMES) from None


class LayerNormScaleShiftSelect(_NormScaleShift):
    """LayerNorm(x) * (1 + scale) + shift and a gate, each token with the one of two sets that its index picks"""

    norm_type = "layer"

    def forward(
        self,
        x: Tensor,
        shift0: Tensor,
        scale0: Tensor,
        gate0: Tensor,
        shift1: Tensor,
        scale1: Tensor,
        gate1: Tensor,
        index: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """In each set shift comes first, as models cut it from their projection; index 0 picks the first set"""
        check_rows("x", x, self.hidden_size)
        sets = (scale0, shift0, gate0, scale1, shift1, gate1)
        try:
            return ops.norm_scale_shift_select(x, *sets, index, self.norm.weight, self.norm.bias, eps=self.eps)
        except BadArgument as wrong:
            raise wrong.renamed(NAMES) from None


class ScaleResidualLayerNormScaleShiftSelect(_NormScaleShift):
    """r = residual + gate * x; then LayerNormScaleShiftSelect of r, which is returned too"""

    norm_type = "layer"

    def forward(
        self,
        residual: Tensor,
        x: Tensor,
        gate: Tensor,
        shift0: Tensor,
        scale0: Tensor,
        gate0: Tensor,
        shift1: Tensor,
        scale1: Tensor,
        gate1: Tensor,
        index: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns y, r, and the gate that each token picked"""
        sets = (scale0, shift0, gate0, scale1, shift1, gate1)
        check_rows("x", x, self.hidden_size)
        try:
            return ops.residual_norm_scale_shift_select(
                x, residual, gate, *sets, index, self.norm.weight, self.norm.bias, eps=self.eps
            )
        except BadArgument as wrong:
            raise wrong.renamed(NAMES) from None


class LayerNormScaleShift(_Plain):
    """LayerNorm(x) * (1 + scale) + shift"""

    norm_type = "layer"


class RMSNormScaleShift(_Plain):
    """RMSNorm(x) * (1 + scale) + shift"""

    norm_type = "rms"


class ScaleResidualLayerNormScaleShift(_BehindResidual):
    """r = residual + gate * x; LayerNorm(r) * (1 + scale) + shift, and r"""

    norm_type = "layer"


class ScaleResidualRMSNormScaleShift(_BehindResidual):
    """r = residual + gate * x; RMSNorm(r) * (1 + scale) + shift, and r"""

    norm_type = "rms"
