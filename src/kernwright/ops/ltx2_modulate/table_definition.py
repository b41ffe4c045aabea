"""rms_modulate from table and timestep. An op's digest covers all of the file that defines it, so what came later has
one of its own: the ops of `definition.py` are still those that were judged."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import wide


@define(outputs=["y"], activations=["x"])
def rms_modulate_from_table(
    x: Tensor, temb_scale_shift: Tensor, scale_shift_table: Tensor, *, eps: float = 1e-6
) -> Tensor:
    """As rms_modulate, with (scale, shift) = table `[2, D]` + timestep embedding `[B, 1, 2 * D]`"""
    embedded = temb_scale_shift.reshape(*temb_scale_shift.shape[:2], *scale_shift_table.shape)
    scale, shift = (scale_shift_table + embedded).unbind(2)
    normed = F.rms_norm(wide(x), (x.shape[-1],), None, eps)
    return normed * (1 + scale) + shift
