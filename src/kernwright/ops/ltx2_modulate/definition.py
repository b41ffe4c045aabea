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
    """rms(x) * (1 + scale) + shift in float32, whatever x's dtype, as LTX-2 runs it under autocast.

    scale and shift broadcast as torch has it: one number, `[D]`, `[B, 1, D]`, `[B, S, D]`, `[S, D]`, each in a dtype of
    its own, in which `1 + scale` rounds. backend: "cuda", "triton" or "torch", for this call. contract: "exact" runs a
    kernel that sums in torch's order where the device has shown that it has torch's bits, and else the eager chain. out
    must not overlap the inputs.
    """
    return _modulated(_normed(x, eps), scale, shift)


@define(outputs=["y0", "y1"], activations=["x"])
def dual_modulate(
    x: Tensor, scale0: Tensor, shift0: Tensor, scale1: Tensor, shift1: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """rms(x) modulated twice: rms_modulate with either pair, of one norm."""
    normed = _normed(x, eps)
    return _modulated(normed, scale0, shift0), _modulated(normed, scale1, shift1)


@define(outputs=["y"], activations=["x"])
def rms_modulate_from_table(
    x: Tensor, temb_scale_shift: Tensor, scale_shift_table: Tensor, *, eps: float = 1e-6
) -> Tensor:
    """rms_modulate with (scale, shift) = table `[2, D]` + timestep embedding `[B, 1, 2 * D]`.

    The sum rounds in the dtype that holds both. An embedding per token, `[B, S, 2 * D]`, is taken too.
    """
    embedded = temb_scale_shift.reshape(*temb_scale_shift.shape[:2], *scale_shift_table.shape)
    scale, shift = (scale_shift_table + embedded).unbind(2)
    normed = F.rms_norm(wide(x), (x.shape[-1],), None, eps)
    return normed * (1 + scale) + shift


@define(outputs=["y0", "y1"], activations=["x"])
def dual_modulate_from_table(
    x: Tensor, temb_scale_shift: Tensor, scale_shift_table: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """dual_modulate with (scale0, shift0, scale1, shift1) = table `[4, D]` + timestep embedding `[B, 1, 4 * D]`.

    The sum rounds in the dtype that holds both. An embedding per token, `[B, S, 4 * D]`, is taken too.
    """
    embedded = temb_scale_shift.reshape(*temb_scale_shift.shape[:2], *scale_shift_table.shape)
    scale0, shift0, scale1, shift1 = (scale_shift_table + embedded).unbind(2)
    normed = _normed(x, eps)
    return _modulated(normed, scale0, shift0), _modulated(normed, scale1, shift1)
