"""The public calls: their signatures, and what each op has of its own; `runtime/fast_path.py` has all else."""

from __future__ import annotations

from torch import Tensor

from kernwright.core.op import Contract
from kernwright.ops.plain_norm.implementations import DISPATCHERS, PROMISES
from kernwright.runtime.fast_path import PublicCall, public_call
from kernwright.runtime.preference import Backend
from kernwright.runtime.slow_path import slow_paths

_ways = slow_paths(DISPATCHERS, PROMISES)
_layer_norm: PublicCall[Tensor] = public_call(_ways["layer_norm"])
_rms_norm: PublicCall[Tensor] = public_call(_ways["rms_norm"])


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
    return _layer_norm((x, weight, bias, eps), backend, contract, out)


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
    return _rms_norm((x, weight, eps), backend, contract, out)
