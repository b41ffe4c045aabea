"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

As in norm_modulation: no binding of signatures, no look at shapes. The foreign function checks the tensors itself, and
answers whether it took them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.ops.residual_norm.arguments import wide_zeros
from kernwright.ops.residual_norm.implementations import DISPATCHERS
from kernwright.ops.residual_norm.traced import OPS
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

_add, _in_place = DISPATCHERS["add_norm"], DISPATCHERS["fused_add_rms_norm_"]
_add_norm_otherwise = LongWay(_add, OPS["add_norm"])
_fused_add_rms_norm_otherwise = LongWay(_in_place, OPS["fused_add_rms_norm_"])


def add_norm(
    x: Tensor,
    residual: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    second: Tensor | None = None,
    row_scale: Tensor | None = None,
    *,
    norm_type: str = "rms",
    residual_in_fp32: bool = False,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """r = x * row_scale + second + residual, what is given of them; returns norm(r) * weight + bias, and r.

    Over the last axis of x. residual and second: x's shape, each in a dtype of its own; row_scale: a number per row of
    x, which it alone is multiplied with; weight and bias: `[D]`, each in a dtype of its own, of either norm. r has the
    residual's dtype; without a residual x's; with residual_in_fp32 float32, or x's where that is wider. norm_type:
    "rms" or "layer". backend: "cuda", "triton" or "torch", for this call. contract: "exact" runs the eager chain. out:
    both tensors, which must not overlap the inputs.
    """
    if residual is None and residual_in_fp32 and isinstance(x, Tensor):
        residual = wide_zeros(x)
    given = (x, residual, weight, bias, second, row_scale)
    if is_compiling() or type(x) is not Tensor or modes():
        scalars = {"norm_type": norm_type, "eps": eps}
        return _add_norm_otherwise.watched(given, scalars, backend, contract, out)  # type: ignore[no-any-return]
    launch = _add.latest(backend, contract)
    # Nothing else is a foreign function's.
    is_sum_of_two = residual is not None and second is None and row_scale is None
    if (
        launch is not None
        and is_sum_of_two
        and (out is None or are_outputs(out, 2))
        and not (is_grad_enabled() and any_trains(given))
    ):
        y, total = (torch.empty_like(x), torch.empty_like(x)) if out is None else out
        try:
            if launch(x, residual, weight, bias, second, row_scale, norm_type, eps, y, total):
                return (y, total) if out is None or not is_grad_enabled() else written((y, total))
            del y, total
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    scalars = {"norm_type": norm_type, "eps": eps}
    return _add_norm_otherwise.run(given, scalars, backend, contract, out)  # type: ignore[no-any-return]


def fused_add_rms_norm_(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
) -> None:
    """residual += x; then x = rms(residual) * weight, both in place, over the last axis.

    x and residual must not overlap each other, or the weight. What trains runs the reference, whose gradient is
    torch's, with torch's own rules for what is changed in place. All else as in add_norm.
    """
    given = (x, residual, weight)
    if is_compiling() or type(x) is not Tensor or modes():
        _fused_add_rms_norm_otherwise.watched(given, {"eps": eps}, backend, contract, None)
        return
    launch = _in_place.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains(given)):
        try:
            if launch(x, residual, weight, eps):
                if is_grad_enabled():
                    written((x, residual))
                return
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    _fused_add_rms_norm_otherwise.run(given, {"eps": eps}, backend, contract, None)
