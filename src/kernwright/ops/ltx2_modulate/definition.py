"""LTX-2's norm and modulation, as they run under bfloat16 autocast: the norm in float32, and float32 results.

Only `1 + scale` is computed in the modulation's own dtype, and rounds there.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import wide


def _normed(x: Tensor, eps: float) -> Tensor:
    return F.rms_norm(wide(x), (x.shape[-1],), None, eps)


def _modulated(normed: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return normed * (1 + scale) + shift


@define(outputs=["y"], activations=["x"])
def rms_modulate(x: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Return `rms(x) * (1 + scale) + shift` in float32 for any dtype of x, as LTX-2 computes it under autocast.

    Arguments:
        x: `[B, S, D]` or `[S, D]`.
        scale, shift: they broadcast over x by torch's rules, as `[D]`, `[B, 1, D]`, `[S, D]` or `[B, S, D]`, in any
            floating point dtype.
        eps: the number added to the mean of squares.

    `1 + scale` rounds in the dtype of scale. With `contract="exact"`, kernels that sum in torch's order run if the
    device has shown that they give torch's bits; otherwise the eager chain runs.
    """
    return _modulated(_normed(x, eps), scale, shift)


@define(outputs=["y0", "y1"], activations=["x"])
def dual_modulate(
    x: Tensor, scale0: Tensor, shift0: Tensor, scale1: Tensor, shift1: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Return two modulations of one RMS norm: `rms_modulate` with (scale0, shift0) and with (scale1, shift1)."""
    normed = _normed(x, eps)
    return _modulated(normed, scale0, shift0), _modulated(normed, scale1, shift1)


@define(outputs=["y"], activations=["x"])
def rms_modulate_from_table(
    x: Tensor, temb_scale_shift: Tensor, scale_shift_table: Tensor, *, eps: float = 1e-6
) -> Tensor:
    """Return `rms_modulate` with `(scale, shift) = table + timestep embedding`.

    Arguments:
        x: `[B, S, D]`.
        temb_scale_shift: the embedding, `[B, 1, 2 * D]`, or `[B, S, 2 * D]` for one per token.
        scale_shift_table: `[2, D]`, scale before shift.
        eps: the number added to the mean of squares.

    The sum of table and embedding rounds in the dtype that holds both.
    """
    embedded = temb_scale_shift.reshape(*temb_scale_shift.shape[:2], *scale_shift_table.shape)
    scale, shift = (scale_shift_table + embedded).unbind(2)
    normed = F.rms_norm(wide(x), (x.shape[-1],), None, eps)
    return normed * (1 + scale) + shift


@define(outputs=["y0", "y1"], activations=["x"])
def dual_modulate_from_table(
    x: Tensor, temb_scale_shift: Tensor, scale_shift_table: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Return `dual_modulate` with `(scale0, shift0, scale1, shift1) = table + timestep embedding`.

    Arguments:
        x: `[B, S, D]`.
        temb_scale_shift: the embedding, `[B, 1, 4 * D]`, or `[B, S, 4 * D]` for one per token.
        scale_shift_table: `[4, D]`.
        eps: the number added to the mean of squares.

    The sum of table and embedding rounds in the dtype that holds both.
    """
    embedded = temb_scale_shift.reshape(*temb_scale_shift.shape[:2], *scale_shift_table.shape)
    scale0, shift0, scale1, shift1 = (scale_shift_table + embedded).unbind(2)
    normed = _normed(x, eps)
    return _modulated(normed, scale0, shift0), _modulated(normed, scale1, shift1)
