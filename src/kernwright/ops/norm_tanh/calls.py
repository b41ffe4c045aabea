"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

A small kernel takes 2 us and its launch several, so what stands before the launch is counted: no binding of signatures,
no look at shapes. The foreign function checks the tensors itself, and answers whether it took them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, empty_like

from kernwright.ops.definition import Contract
from kernwright.ops.norm_tanh.implementations import DISPATCHERS
from kernwright.ops.norm_tanh.traced import OPS
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

_once, _twice = DISPATCHERS["norm_tanh_mul_add"], DISPATCHERS["norm_tanh_mul_add_norm_scale"]
_once_otherwise = LongWay(_once, OPS["norm_tanh_mul_add"])
_twice_otherwise = LongWay(_twice, OPS["norm_tanh_mul_add_norm_scale"])


def norm_tanh_mul_add(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm_type: str = "rms",
    eps: float = 1e-5,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """norm(x) * tanh(scale) + shift, over x `[B, S, D]`: with a gate and a residual, residual + tanh(gate) * norm(x).

    scale and shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` per frame of S / F tokens,
    each in a dtype of its own. norm_type: "rms" or "layer". backend: "cuda", "triton" or "torch", for this
    call. contract: "exact" runs the eager chain. out must not overlap the inputs.
    """
    given = (x, scale, shift, weight, bias)
    if is_compiling() or type(x) is not Tensor or modes():
        scalars = {"norm_type": norm_type, "eps": eps}
        return _once_otherwise.watched(given, scalars, backend, contract, out)  # type: ignore[no-any-return]
    launch = _once.latest(backend, contract)
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
    return _once_otherwise.run(given, scalars, backend, contract, out)  # type: ignore[no-any-return]


def norm_tanh_mul_add_norm_scale(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    scale2: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    weight2: Tensor | None = None,
    bias2: Tensor | None = None,
    *,
    norm_type: str = "rms",
    eps: float = 1e-5,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """y = norm(x) * tanh(scale) + shift; returns it and norm(y) * (1 + scale2), all as in norm_tanh_mul_add."""
    given = (x, scale, shift, scale2, weight, bias, weight2, bias2)
    if is_compiling() or type(x) is not Tensor or modes():
        scalars = {"norm_type": norm_type, "eps": eps}
        return _twice_otherwise.watched(given, scalars, backend, contract, out)  # type: ignore[no-any-return]
    launch = _twice.latest(backend, contract)
    if launch is not None and (out is None or are_outputs(out, 2)) and not (is_grad_enabled() and any_trains(given)):
        y, y2 = (empty_like(x), empty_like(x)) if out is None else out
        try:
            if launch(x, scale, shift, scale2, weight, bias, weight2, bias2, norm_type, eps, y, y2):
                return (y, y2) if out is None or not is_grad_enabled() else written((y, y2))
            del y, y2
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    scalars = {"norm_type": norm_type, "eps": eps}
    return _twice_otherwise.run(given, scalars, backend, contract, out)  # type: ignore[no-any-return]
