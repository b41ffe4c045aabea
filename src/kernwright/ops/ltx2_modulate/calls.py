"""The public calls: their signatures, and what each op has of its own; `runtime/fast_path.py` has all else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, empty_like

from kernwright.core.op import Contract
from kernwright.ops.ltx2_modulate.implementations import DISPATCHERS, PROMISES
from kernwright.runtime.fast_path import PublicCall, public_call
from kernwright.runtime.preference import Backend
from kernwright.runtime.slow_path import slow_paths

FLOAT32 = torch.float32
_ways = slow_paths(DISPATCHERS, PROMISES)


def _one_wide(arguments: tuple[Any, ...]) -> tuple[Tensor]:
    return (empty_like(arguments[0], dtype=FLOAT32),)


def _two_wide(arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    x = arguments[0]
    return empty_like(x, dtype=FLOAT32), empty_like(x, dtype=FLOAT32)


_one: PublicCall[Tensor] = public_call(_ways["rms_modulate"], _one_wide)
_two: PublicCall[tuple[Tensor, Tensor]] = public_call(_ways["dual_modulate"], _two_wide)
_one_from_table: PublicCall[Tensor] = public_call(_ways["rms_modulate_from_table"], _one_wide)
_two_from_table: PublicCall[tuple[Tensor, Tensor]] = public_call(_ways["dual_modulate_from_table"], _two_wide)


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
    return _one((x, scale, shift, eps), backend, contract, out)


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
    return _two((x, scale0, shift0, scale1, shift1, eps), backend, contract, out)


def rms_modulate_from_table(
    x: Tensor,
    temb_scale_shift: Tensor,
    scale_shift_table: Tensor,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """rms_modulate with (scale, shift) = table `[2, D]` + timestep embedding `[B, 1, 2 * D]`.

    The sum rounds in the dtype that holds both. An embedding per token, `[B, S, 2 * D]`, is taken too.
    """
    return _one_from_table((x, temb_scale_shift, scale_shift_table, eps), backend, contract, out)


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
    return _two_from_table((x, temb_scale_shift, scale_shift_table, eps), backend, contract, out)
