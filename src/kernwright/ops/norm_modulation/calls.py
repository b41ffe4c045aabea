"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

A small kernel takes 2 us and its launch several, so what stands before the launch is counted: no binding of signatures,
no look at shapes. The foreign function checks the tensors itself, and answers whether it took them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.ops.norm_modulation import definition, traced
from kernwright.ops.norm_modulation.implementations import DISPATCHERS
from kernwright.runtime.preference import Backend

_plain = DISPATCHERS["norm_scale_shift"]
_behind_residual = DISPATCHERS["residual_norm_scale_shift"]
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled


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
    contract: "exact" runs the eager chain. out must not overlap the inputs.
    """
    if _is_compiling():
        if _is_grad_enabled() and _any_trains(x, scale, shift, weight, bias):
            return definition.norm_scale_shift.reference(  # type: ignore[return-value]
                x, scale, shift, weight, bias, norm_type=norm_type, eps=eps
            )
        result = traced.norm_scale_shift(x, scale, shift, weight, bias, norm_type, eps, backend, contract)
        return result if out is None else out.copy_(result)
    launch = _plain.ready(x, backend, contract)
    if launch is not None and not (_is_grad_enabled() and _any_trains(x, scale, shift, weight, bias)):
        y = torch.empty_like(x) if out is None else out
        if launch(x, scale, shift, weight, bias, norm_type, eps, y):
            return y
    given = (x, scale, shift, weight, bias)
    return _plain.run(  # type: ignore[no-any-return]
        given, {"norm_type": norm_type, "eps": eps}, backend, contract, out
    )


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
    if _is_compiling():
        if _is_grad_enabled() and _any_trains(x, residual, scale, shift, gate, weight, bias):
            return definition.residual_norm_scale_shift.reference(  # type: ignore[return-value]
                x, residual, scale, shift, gate, weight, bias, norm_type=norm_type, eps=eps
            )
        results = traced.residual_norm_scale_shift(
            x, residual, scale, shift, gate, weight, bias, norm_type, eps, backend, contract
        )
        return results if out is None else (out[0].copy_(results[0]), out[1].copy_(results[1]))
    launch = _behind_residual.ready(x, backend, contract)
    if launch is not None and not (_is_grad_enabled() and _any_trains(x, residual, scale, shift, gate, weight, bias)):
        y, total = (torch.empty_like(x), torch.empty_like(x)) if out is None else out
        if launch(x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, total):
            return y, total
    given = (x, residual, scale, shift, gate, weight, bias)
    return _behind_residual.run(  # type: ignore[no-any-return]
        given, {"norm_type": norm_type, "eps": eps}, backend, contract, out
    )


def _any_trains(*tensors: Tensor | None) -> bool:
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)
