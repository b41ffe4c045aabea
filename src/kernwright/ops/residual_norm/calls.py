"""The public calls: their signatures, and what each op has of its own; `runtime/fast_path.py` has all else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, empty_like

from kernwright.core.op import Contract
from kernwright.ops.residual_norm.arguments import wide_zeros
from kernwright.ops.residual_norm.implementations import DISPATCHERS, PROMISES
from kernwright.runtime.fast_path import PublicCall, public_call
from kernwright.runtime.preference import Backend
from kernwright.runtime.slow_path import slow_paths


def _results(arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """As promised; the short way's, which looks no closer. A dtype that is named takes longer than one that is not."""
    x, residual = arguments[:2]
    if residual is None or residual.dtype is x.dtype:
        return empty_like(x), empty_like(x)
    return empty_like(x), empty_like(x, dtype=residual.dtype)


_ways = slow_paths(DISPATCHERS, PROMISES)
_add_norm: PublicCall[tuple[Tensor, Tensor]] = public_call(_ways["add_norm"], _results)
_fused_add_rms_norm_: PublicCall[None] = public_call(_ways["fused_add_rms_norm_"])


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
    return _add_norm((x, residual, weight, bias, second, row_scale, norm_type, eps), backend, contract, out)


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

    x and residual must not overlap each other in part, or the weight; one tensor as both holds the norm in the end.
    What trains runs the reference, whose gradient is torch's, with torch's own rules for what is changed in place. All
    else as in add_norm.
    """
    return _fused_add_rms_norm_((x, residual, weight, eps), backend, contract, None)
