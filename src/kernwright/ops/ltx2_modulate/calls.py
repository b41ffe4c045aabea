"""The public calls. Without a native kernel there is no short way yet: `runtime/long_way.py` is all of it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.ops.ltx2_modulate.implementations import DISPATCHERS
from kernwright.ops.ltx2_modulate.traced import OPS
from kernwright.runtime.long_way import LongWay
from kernwright.runtime.preference import Backend

_one, _two, _from_table = (LongWay(DISPATCHERS[name], OPS[name]) for name in DISPATCHERS)


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
    its own, in which `1 + scale` rounds. backend: "triton" or "torch", for this call. contract: "exact" runs a
    kernel that sums in torch's order where the device has shown that it has torch's bits, and else the eager chain. out
    must not overlap the inputs.
    """
    return _one.call((x, scale, shift), {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


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
    return _two.call(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


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
    return _from_table.call(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
