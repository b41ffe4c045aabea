"""The public calls: their signatures, and what each op has of its own; `runtime/fast_path.py` has all else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, empty_like

from kernwright.core.op import Contract
from kernwright.ops.norm_modulation.arguments import chosen_gate_like
from kernwright.ops.norm_modulation.implementations import DISPATCHERS, PROMISES
from kernwright.runtime.fast_path import PublicCall, public_call
from kernwright.runtime.preference import Backend
from kernwright.runtime.slow_path import slow_paths

_ways = slow_paths(DISPATCHERS, PROMISES)
_norm_scale_shift: PublicCall[Tensor] = public_call(_ways["norm_scale_shift"])
_behind_residual: PublicCall[tuple[Tensor, Tensor]] = public_call(_ways["residual_norm_scale_shift"])


def _y_and_gate(arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """The chosen gate is as x is, where both gates are."""
    x, gate0, gate1 = arguments[0], arguments[3], arguments[6]
    alike = gate0.dtype is gate1.dtype is x.dtype
    return empty_like(x), empty_like(x) if alike else chosen_gate_like(x, gate0, gate1)


def _y_sum_and_gate(arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor, Tensor]:
    x, gate0, gate1 = arguments[0], arguments[5], arguments[8]
    alike = gate0.dtype is gate1.dtype is x.dtype
    return empty_like(x), empty_like(x), empty_like(x) if alike else chosen_gate_like(x, gate0, gate1)


_select: PublicCall[tuple[Tensor, Tensor]] = public_call(_ways["norm_scale_shift_select"], _y_and_gate)
_residual_select: PublicCall[tuple[Tensor, Tensor, Tensor]] = public_call(
    _ways["residual_norm_scale_shift_select"], _y_sum_and_gate
)


def norm_scale_shift(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm_type: str = "layer",
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """norm(x) * (1 + scale) + shift, over x `[B, S, D]`.

    scale and shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` per frame of S / F tokens,
    each in a dtype of its own. Beside x of more axes they broadcast as torch has it. norm_type: "layer" or "rms".
    backend: "cuda", "cpu", "triton" or "torch", for this call. contract: "exact" runs, for LayerNorm without weight and
    bias, a kernel that norms in torch's order where the device has shown that it has torch's bits, and else the eager
    chain. out must not overlap the inputs.
    """
    return _norm_scale_shift((x, scale, shift, weight, bias, norm_type, eps), backend, contract, out)


def residual_norm_scale_shift(
    x: Tensor,
    residual: Tensor,
    scale: Tensor,
    shift: Tensor,
    gate: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm_type: str = "layer",
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """r = residual + gate * x (no gate: residual + x); returns norm(r) * (1 + scale) + shift, and r.

    r has x's dtype, whatever the residual's (add_norm keeps the residual's). The gate has the layouts of scale and
    shift; all else as in norm_scale_shift. out: both tensors.
    """
    return _behind_residual((x, residual, scale, shift, gate, weight, bias, norm_type, eps), backend, contract, out)


def norm_scale_shift_select(
    x: Tensor,
    scale0: Tensor,
    shift0: Tensor,
    gate0: Tensor,
    scale1: Tensor,
    shift1: Tensor,
    gate1: Tensor,
    index: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """LN(x) * (1 + scale) + shift and the gate, `[B, S, D]` both, each token with the set that its index picks.

    The sets are rows `[B, D]`, the index `[B, S]` of integers or booleans: 0 picks the first set, any other number the
    second, so that no number leads outside them. All else as in norm_scale_shift.
    """
    return _select((x, scale0, shift0, gate0, scale1, shift1, gate1, index, weight, bias, eps), backend, contract, out)


def residual_norm_scale_shift_select(
    x: Tensor,
    residual: Tensor,
    residual_gate: Tensor,
    scale0: Tensor,
    shift0: Tensor,
    gate0: Tensor,
    scale1: Tensor,
    shift1: Tensor,
    gate1: Tensor,
    index: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """r = residual + residual_gate * x; then norm_scale_shift_select of r. Returns y, r and the chosen gate.

    residual_gate has the layouts of scale and shift in norm_scale_shift.
    """
    return _residual_select(
        (x, residual, residual_gate, scale0, shift0, gate0, scale1, shift1, gate1, index, weight, bias, eps),
        backend,
        contract,
        out,
    )
