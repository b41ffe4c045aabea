"""LayerNorm and RMSNorm over the last axis: torch's modules with a fused forward.

They replace torch.nn.LayerNorm and torch.nn.RMSNorm, with the same state dict, defaults and names of arguments. With a
residual they return the norm of the sum and the sum, as the norms of decoders do.
"""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor, is_grad_enabled, nn

from kernwright import ops
from kernwright.nn.gradients import warn_of_gradients
from kernwright.nn.rows import check_rows
from kernwright.runtime.call import BadArgument


def _check_last_axis_alone(normalized_shape: tuple[int, ...]) -> None:
    if len(normalized_shape) != 1:
        raise BadArgument("normalized_shape", f"is {list(normalized_shape)}; the norm is over the last axis alone")


class LayerNorm(nn.LayerNorm):
    """`(x - mean(x)) * rsqrt(var(x) + eps) * weight + bias` over the last axis.

    A torch.nn.LayerNorm with a fused forward. `normalized_shape` has one axis.
    """

    def __init__(
        self,
        normalized_shape: int | list[int] | torch.Size,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Take the arguments of torch.nn.LayerNorm; normalized_shape has one axis."""
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        _check_last_axis_alone(self.normalized_shape)

    @overload
    def forward(self, input: Tensor) -> Tensor: ...
    @overload
    def forward(self, input: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]: ...
    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return the norm of input. With a residual, return the norm of the sum, and the sum in its dtype."""
        if is_grad_enabled():
            warn_of_gradients("LayerNorm", input, self.weight, self.bias)
        check_rows("input", input, self.normalized_shape[0])
        try:
            if residual is None:
                return ops.layer_norm(input, self.weight, self.bias, eps=self.eps)
            return ops.add_norm(input, residual, self.weight, self.bias, norm_type="layer", eps=self.eps)
        except BadArgument as wrong:
            raise wrong.renamed({"x": "input"}) from None


class RMSNorm(nn.RMSNorm):
    """`x * rsqrt(mean(x ** 2) + eps) * weight` over the last axis.

    A torch.nn.RMSNorm with a fused forward. `normalized_shape` has one axis.
    """

    def __init__(
        self,
        normalized_shape: int | list[int] | torch.Size,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Take the arguments of torch.nn.RMSNorm; normalized_shape has one axis."""
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        _check_last_axis_alone(self.normalized_shape)

    @overload
    def forward(self, x: Tensor) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]: ...
    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return the norm of x. With a residual, return the norm of the sum, and the sum in its dtype."""
        if is_grad_enabled():
            warn_of_gradients("RMSNorm", x, self.weight)
        check_rows("x", x, self.normalized_shape[0])
        eps = _machine_epsilon(x) if self.eps is None else self.eps
        if residual is None:
            return ops.rms_norm(x, self.weight, eps=eps)
        return ops.add_norm(x, residual, self.weight, norm_type="rms", eps=eps)


def _machine_epsilon(x: Tensor) -> float:
    """Return torch's default eps: that of the dtype in which it computes, which is at least float32."""
    dtype = x.dtype if isinstance(x, Tensor) and x.is_floating_point() else torch.float32  # the op names other values
    return torch.finfo(torch.promote_types(dtype, torch.float32)).eps
