"""ERNIE's norms, modulation and gated residuals in Triton, with the kernels of `norm_modulation` and `modulation`. They
run on a GPU without nvcc.

Contract: close for the norms. Everything is float32 between loads and stores, also the input of the norm: the sum with
the residual is rounded only for its own store. Exact for ernie_residual_gate: a product, a sum and one rounding, none
of them fused.

Bytes per token: tokens are read once and written once, as in those kernels. Modulations that tokens share stay in the
cache. Share of a copy's bandwidth: not measured yet.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernwright.ops._shared.modulation_layout import aligned
from kernwright.ops.modulation.triton import modulated
from kernwright.ops.norm_modulation.triton import launch
from kernwright.runtime.outputs import rows_like


def ernie_norm_modulate(
    x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-6, out: Any = None
) -> Tensor:
    y = rows_like(x) if out is None else out
    launch(x, None, None, aligned(scale, x.ndim), aligned(shift, x.ndim), weight, None, "rms", eps, y)
    return y


def ernie_residual_norm_modulate(
    residual: Tensor, update: Tensor, gate: Tensor, weight: Tensor, scale: Tensor, shift: Tensor,
    *, eps: float = 1e-6, out: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    total, y = out or (rows_like(residual), rows_like(residual))
    gate, scale, shift = (aligned(own, residual.ndim) for own in (gate, scale, shift))
    launch(update, residual, gate, scale, shift, weight, None, "rms", eps, y, total, rounds=False)
    return total, y


def ernie_residual_gate(residual: Tensor, update: Tensor, gate: Tensor, *, out: Any = None) -> Tensor:
    y = rows_like(residual) if out is None else out
    return modulated(update, aligned(gate, update.ndim), residual, None, y, rounds_once=True)
