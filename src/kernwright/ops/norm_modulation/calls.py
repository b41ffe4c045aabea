"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

A small kernel takes 2 us and its launch several, so what stands before the launch is counted: no binding of signatures,
no look at shapes. The foreign function checks the tensors itself, and answers whether it took them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, empty_like

from kernwright.ops.definition import Contract
from kernwright.ops.norm_modulation.arguments import chosen_gate_like
from kernwright.ops.norm_modulation.implementations import DISPATCHERS
from kernwright.ops.norm_modulation.traced import OPS
from kernwright.runtime.long_way import (
    MISFITS,
    LongWay,
    any_trains,
    are_outputs,
    goes_on,
    is_compiling,
    is_grad_enabled,
    modes,
)
from kernwright.runtime.outputs import written
from kernwright.runtime.preference import Backend

_plain = DISPATCHERS["norm_scale_shift"]
_behind_residual = DISPATCHERS["residual_norm_scale_shift"]
_norm_scale_shift_otherwise = LongWay(_plain, OPS["norm_scale_shift"])
_residual_norm_scale_shift_otherwise = LongWay(_behind_residual, OPS["residual_norm_scale_shift"])
_select = DISPATCHERS["norm_scale_shift_select"]
_residual_select = DISPATCHERS["residual_norm_scale_shift_select"]
_select_otherwise = LongWay(_select, OPS["norm_scale_shift_select"])
_residual_select_otherwise = LongWay(_residual_select, OPS["residual_norm_scale_shift_select"])


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
    each in a dtype of its own. norm_type: "layer" or "rms". backend: "cuda", "cpu", "triton" or "torch", for this call.
    contract: "exact" runs, for LayerNorm without weight and bias, a kernel that norms in torch's order where the device
    has shown that it has torch's bits, and else the eager chain. out must not overlap the inputs.
    """
    given = (x, scale, shift, weight, bias)
    if is_compiling() or type(x) is not Tensor or modes():
        scalars = {"norm_type": norm_type, "eps": eps}
        return _norm_scale_shift_otherwise.watched(given, scalars, backend, contract, out)  # type: ignore[no-any-return]
    launch = _plain.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains(given)):
        y = empty_like(x) if out is None else out
        try:
            if launch(x, scale, shift, weight, bias, norm_type, eps, y):
                return y if out is None or not is_grad_enabled() else written(y)
            del y
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    scalars = {"norm_type": norm_type, "eps": eps}
    return _norm_scale_shift_otherwise.run(given, scalars, backend, contract, out)  # type: ignore[no-any-return]


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

    The gate has the layouts of scale and shift; all else as in norm_scale_shift. out: both tensors.
    """
    given = (x, residual, scale, shift, gate, weight, bias)
    if is_compiling() or type(x) is not Tensor or modes():
        scalars = {"norm_type": norm_type, "eps": eps}
        return _residual_norm_scale_shift_otherwise.watched(given, scalars, backend, contract, out)  # type: ignore[no-any-return]
    launch = _behind_residual.latest(backend, contract)
    if launch is not None and (out is None or are_outputs(out, 2)) and not (is_grad_enabled() and any_trains(given)):
        y, total = (empty_like(x), empty_like(x)) if out is None else out
        try:
            if launch(x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, total):
                return (y, total) if out is None or not is_grad_enabled() else written((y, total))
            del y, total
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    scalars = {"norm_type": norm_type, "eps": eps}
    return _residual_norm_scale_shift_otherwise.run(given, scalars, backend, contract, out)  # type: ignore[no-any-return]


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
    given = (x, scale0, shift0, gate0, scale1, shift1, gate1, index, weight, bias)
    if is_compiling() or type(x) is not Tensor or modes():
        return _select_otherwise.watched(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _select.latest(backend, contract)
    if launch is not None and (out is None or are_outputs(out, 2)) and not (is_grad_enabled() and any_trains(given)):
        try:
            if out is not None:
                y, gate = out
            else:
                alike = gate0.dtype is gate1.dtype is x.dtype
                y, gate = empty_like(x), empty_like(x) if alike else chosen_gate_like(x, gate0, gate1)
            if launch(
                x, scale0, shift0, gate0, scale1, shift1, gate1, index, weight, bias, eps, y, gate
            ):  # fmt: skip
                return (y, gate) if out is None or not is_grad_enabled() else written((y, gate))
            del y, gate
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    return _select_otherwise.run(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


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
    given = (
        x, residual, residual_gate, scale0, shift0, gate0, scale1, shift1, gate1, index, weight, bias
    )  # fmt: skip
    if is_compiling() or type(x) is not Tensor or modes():
        return _residual_select_otherwise.watched(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _residual_select.latest(backend, contract)
    if launch is not None and (out is None or are_outputs(out, 3)) and not (is_grad_enabled() and any_trains(given)):
        try:
            if out is not None:
                y, total, gate = out
            else:
                alike = gate0.dtype is gate1.dtype is x.dtype
                y, total, gate = (
                    empty_like(x),
                    empty_like(x),
                    empty_like(x) if alike else chosen_gate_like(x, gate0, gate1),
                )
            if launch(
                x, residual, residual_gate, scale0, shift0, gate0, scale1, shift1, gate1, index, weight, bias,
                eps, y, total, gate
            ):  # fmt: skip
                return (y, total, gate) if out is None or not is_grad_enabled() else written((y, total, gate))
            del y, total, gate
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    return _residual_select_otherwise.run(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
