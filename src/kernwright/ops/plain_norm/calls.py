"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

As in norm_modulation: no binding of signatures, no look at shapes. The foreign function checks the tensors itself, and
answers whether it took them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.ops.plain_norm.implementations import DISPATCHERS
from kernwright.ops.plain_norm.traced import OPS
from kernwright.runtime.long_way import MISFITS, LongWay, any_trains, goes_on, is_compiling, is_grad_enabled, modes
from kernwright.runtime.outputs import written
from kernwright.runtime.preference import Backend

_layer, _rms = DISPATCHERS["layer_norm"], DISPATCHERS["rms_norm"]
_layer_norm_otherwise = LongWay(_layer, OPS["layer_norm"])
_rms_norm_otherwise = LongWay(_rms, OPS["rms_norm"])


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """(x - mean(x)) * rsqrt(var(x) + eps) * weight + bias, over the last axis of x.

    weight and bias: `[D]`, each in a dtype of its own. backend: "cuda", "triton" or "torch", for this call. contract:
    "exact" runs torch's own norm. out must not overlap the inputs.
    """
    if is_compiling() or type(x) is not Tensor or modes():
        return _layer_norm_otherwise.watched((x, weight, bias), {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _layer.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains((x, weight, bias))):
        y = torch.empty_like(x) if out is None else out
        try:
            if launch(x, weight, bias, eps, y):
                return y if out is None or not is_grad_enabled() else written(y)
            del y
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    return _layer_norm_otherwise.run((x, weight, bias), {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """x * rsqrt(mean(x ** 2) + eps) * weight, over the last axis of x; all else as in layer_norm."""
    if is_compiling() or type(x) is not Tensor or modes():
        return _rms_norm_otherwise.watched((x, weight), {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _rms.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains((x, weight))):
        y = torch.empty_like(x) if out is None else out
        try:
            if launch(x, weight, eps, y):
                return y if out is None or not is_grad_enabled() else written(y)
            del y
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    return _rms_norm_otherwise.run((x, weight), {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
