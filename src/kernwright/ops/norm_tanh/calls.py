"""The public calls: their signatures, and what each op has of its own; `runtime/fast_path.py` has all else."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kernwright.core.op import Contract
from kernwright.ops.norm_tanh.implementations import DISPATCHERS, PROMISES
from kernwright.runtime.fast_path import PublicCall, public_call
from kernwright.runtime.preference import Backend
from kernwright.runtime.slow_path import slow_paths

_ways = slow_paths(DISPATCHERS, PROMISES)
_once: PublicCall[Tensor] = public_call(_ways["norm_tanh_mul_add"])
_twice: PublicCall[tuple[Tensor, Tensor]] = public_call(_ways["norm_tanh_mul_add_norm_scale"])


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
    each in a dtype of its own. Beside x of more axes they broadcast as torch has it. norm_type: "rms" or "layer".
    backend: "cuda", "triton" or "torch", for this call. contract: "exact" runs the eager chain. out must not overlap
    the inputs.
    """
    return _once((x, scale, shift, weight, bias, norm_type, eps), backend, contract, out)


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
    return _twice((x, scale, shift, scale2, weight, bias, weight2, bias2, norm_type, eps), backend, contract, out)
