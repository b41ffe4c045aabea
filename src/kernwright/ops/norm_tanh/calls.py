"""The public calls. Without a native kernel there is no short way yet: `runtime/long_way.py` is all of it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.ops.norm_tanh.implementations import DISPATCHERS
from kernwright.ops.norm_tanh.traced import OPS
from kernwright.runtime.long_way import LongWay
from kernwright.runtime.preference import Backend

_once, _twice = (
    LongWay(DISPATCHERS[name], OPS[name]) for name in ("norm_tanh_mul_add", "norm_tanh_mul_add_norm_scale")
)


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
    each in a dtype of its own. norm_type: "rms" or "layer". backend: "triton" or "torch", for this call. contract:
    "exact" runs the eager chain. out must not overlap the inputs.
    """
    scalars = {"norm_type": norm_type, "eps": eps}
    return _once.call((x, scale, shift, weight, bias), scalars, backend, contract, out)  # type: ignore[no-any-return]


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
    scalars = {"norm_type": norm_type, "eps": eps}
    return _twice.call(given, scalars, backend, contract, out)  # type: ignore[no-any-return]
