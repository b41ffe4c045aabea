"""Norm, scale and shift as modules.

Their parameters are `norm.weight` and `norm.bias`, so that a checkpoint of a block that holds torch.nn.LayerNorm or
torch.nn.RMSNorm as `norm` loads without changes.
"""

from __future__ import annotations

import torch
from torch import Tensor, is_grad_enabled, nn

from kernwright import ops
from kernwright.nn.gradients import warn_of_gradients
from kernwright.nn.rows import check_rows
from kernwright.runtime.call import BadArgument

# The names of arguments that the ops call differently.
NAMES = {"residual_gate": "gate", "weight": "norm.weight", "bias": "norm.bias"}


class _Affine(nn.Module):
    """The parameters of a norm, if it has any: the state dict of torch's module, without its forward."""

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
        """Set the weight to ones and the bias to zeros, as torch's norms do."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class _NormScaleShift(nn.Module):
    """A norm over the last axis, followed by a modulation."""

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
        """Make the norm and its parameters.

        Arguments:
            hidden_size: the width of a row.
            eps: the number added to the variance.
            elementwise_affine: whether the norm has a weight, and in a LayerNorm also a bias.
            bias: False makes a LayerNorm with a weight and without a bias.
            device, dtype: device and dtype of the parameters.
        """
        super().__init__()
        self.hidden_size, self.eps = hidden_size, eps
        has_bias = elementwise_affine and bias and self.norm_type == "layer"
        self.norm = _Affine(hidden_size, elementwise_affine, has_bias, device, dtype)

    def _warn_of_gradients(self, x: Tensor) -> None:
        warn_of_gradients(type(self).__name__, x, self.norm.weight, self.norm.bias)

    def extra_repr(self) -> str:
        """Return the text between the parentheses of `repr`."""
        return f"{self.hidden_size}, eps={self.eps}, elementwise_affine={self.norm.weight is not None}"


class _Plain(_NormScaleShift):
    """The modulated norm of x."""

    def forward(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """Return `norm(x) * (1 + scale) + shift`.

        x is `[B, S, D]` or `[S, D]`. shift and scale have the layouts of `kernwright.ops.norm_scale_shift`; shift comes
        first, as models call it.
        """
        if is_grad_enabled():
            self._warn_of_gradients(x)
        check_rows("x", x, self.hidden_size)
        try:
            return ops.norm_scale_shift(
                x, scale, shift, self.norm.weight, self.norm.bias, norm_type=self.norm_type, eps=self.eps
            )
        except BadArgument as wrong:
            raise wrong.renamed(NAMES) from None


class _BehindResidual(_NormScaleShift):
    """The modulated norm of a residual sum."""

    def forward(
        self, residual: Tensor, x: Tensor, gate: Tensor | float | None, shift: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return `norm(r) * (1 + scale) + shift` and r, where `r = residual + gate * x`.

        With a gate of 1 or None, r is `residual + x`. The gate has the layouts of shift and scale.
        """
        if is_grad_enabled():
            self._warn_of_gradients(x)
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
    """`LayerNorm(x) * (1 + scale) + shift` and a gate. Each token takes scale, shift and gate from one of two sets."""

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
        """Return the modulated norm and the gate of each token.

        The sets are rows `[B, D]`. index is `[B, S]`: 0 picks the first set, every other number the second.
        """
        if is_grad_enabled():
            self._warn_of_gradients(x)
        check_rows("x", x, self.hidden_size)
        sets = (scale0, shift0, gate0, scale1, shift1, gate1)
        try:
            return ops.norm_scale_shift_select(x, *sets, index, self.norm.weight, self.norm.bias, eps=self.eps)
        except BadArgument as wrong:
            raise wrong.renamed(NAMES) from None


class ScaleResidualLayerNormScaleShiftSelect(_NormScaleShift):
    """`r = residual + gate * x`, then LayerNormScaleShiftSelect of r. r is returned, too."""

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
        """Return the modulated norm of r, r itself, and the gate of each token."""
        if is_grad_enabled():
            self._warn_of_gradients(x)
        sets = (scale0, shift0, gate0, scale1, shift1, gate1)
        check_rows("x", x, self.hidden_size)
        try:
            return ops.residual_norm_scale_shift_select(
                x, residual, gate, *sets, index, self.norm.weight, self.norm.bias, eps=self.eps
            )
        except BadArgument as wrong:
            raise wrong.renamed(NAMES) from None


class LayerNormScaleShift(_Plain):
    """`LayerNorm(x) * (1 + scale) + shift`, called with (x, shift, scale)."""

    norm_type = "layer"


class RMSNormScaleShift(_Plain):
    """`RMSNorm(x) * (1 + scale) + shift`, called with (x, shift, scale)."""

    norm_type = "rms"


class ScaleResidualLayerNormScaleShift(_BehindResidual):
    """`LayerNorm(r) * (1 + scale) + shift` and r, where `r = residual + gate * x`.

    Called with (residual, x, gate, shift, scale).
    """

    norm_type = "layer"


class ScaleResidualRMSNormScaleShift(_BehindResidual):
    """`RMSNorm(r) * (1 + scale) + shift` and r, where `r = residual + gate * x`.

    Called with (residual, x, gate, shift, scale).
    """

    norm_type = "rms"
