"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

As in norm_modulation: no binding of signatures, no look at shapes. The foreign function checks the tensors itself, and
answers whether it took them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, empty_like

from kernwright.ops.definition import Contract
from kernwright.ops.ltx2_modulate.implementations import DISPATCHERS
from kernwright.ops.ltx2_modulate.traced import OPS
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

FLOAT32 = torch.float32
_one, _two, _from_table = DISPATCHERS.values()
_one_otherwise, _two_otherwise, _from_table_otherwise = (LongWay(DISPATCHERS[name], OPS[name]) for name in DISPATCHERS)


def rms_modulate(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """rms(x) * (1 + scale) + shift in float32, whatever x's dtype, as LTX-2 runs it under autocast.

    scale and shift broadcast as torch has it: one number, `[D]`, `[B, 1, D]`, `[B, S, D]`, `[S, D]`, each in a dtype of
    its own, in which `1 + scale` rounds. backend: "cuda", "triton" or "torch", for this call. contract: "exact" runs a
    kernel that sums in torch's order where the device has shown that it has torch's bits, and else the eager chain. out
    must not overlap the inputs.
    """
    given = (x, scale, shift)
    if is_compiling() or type(x) is not Tensor or modes():
        return _one_otherwise.watched(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _one.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains(given)):
        y = empty_like(x, dtype=FLOAT32) if out is None else out
        try:
            if launch(x, scale, shift, eps, y):
                return y if out is None or not is_grad_enabled() else written(y)
            del y
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    return _one_otherwise.run(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


def dual_modulate(
    x: Tensor,
    scale0: Tensor,
    shift0: Tensor,
    scale1: Tensor,
    shift1: Tensor,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """rms(x) modulated twice: rms_modulate with either pair, of one norm."""
    given = (x, scale0, shift0, scale1, shift1)
    if is_compiling() or type(x) is not Tensor or modes():
        return _two_otherwise.watched(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _two.latest(backend, contract)
    if launch is not None and (out is None or are_outputs(out, 2)) and not (is_grad_enabled() and any_trains(given)):
        y0, y1 = (empty_like(x, dtype=FLOAT32), empty_like(x, dtype=FLOAT32)) if out is None else out
        try:
            if launch(x, scale0, shift0, scale1, shift1, eps, y0, y1):
                return (y0, y1) if out is None or not is_grad_enabled() else written((y0, y1))
            del y0, y1
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    return _two_otherwise.run(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


def dual_modulate_from_table(
    x: Tensor,
    temb_scale_shift: Tensor,
    scale_shift_table: Tensor,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """dual_modulate with (scale0, shift0, scale1, shift1) = table `[4, D]` + timestep embedding `[B, 1, 4 * D]`.

    The sum rounds in the dtype that holds both. An embedding per token, `[B, S, 4 * D]`, is taken too.
    """
    given = (x, temb_scale_shift, scale_shift_table)
    if is_compiling() or type(x) is not Tensor or modes():
        return _from_table_otherwise.watched(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _from_table.latest(backend, contract)
    if launch is not None and (out is None or are_outputs(out, 2)) and not (is_grad_enabled() and any_trains(given)):
        y0, y1 = (empty_like(x, dtype=FLOAT32), empty_like(x, dtype=FLOAT32)) if out is None else out
        try:
            if launch(x, temb_scale_shift, scale_shift_table, eps, y0, y1):
                return (y0, y1) if out is None or not is_grad_enabled() else written((y0, y1))
            del y0, y1
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    return _from_table_otherwise.run(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
