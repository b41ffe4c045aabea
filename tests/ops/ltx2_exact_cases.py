"""Calls of LTX-2's modulated norms with the contract `exact`. On a GPU they must have torch's own bits. A CPU sums in
another order, so there Triton's interpreter and emulated CUDA kernels are compared with a twin that follows the GPU's
order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import ltx2_modulate_cases
import numpy as np
import torch
import torch.nn.functional as F
from ltx2_modulate_cases import Case
from same_bits import hold_bits
from token_cases import BF16, FP16, FP32, arguments
from torch import Tensor

from kernwright.core.registry import shipped_ops

FAMILY = "ltx2_modulate"
WANTED = (
    "mixed",
    "dual mixed",
    "table torch.bfloat16 torch.float32",
    "table torch.bfloat16 torch.bfloat16",
    "rms table torch.bfloat16 torch.float32",
    "rms table torch.float16 torch.float16",
    "dual gaps",
)
CASES = {name: ltx2_modulate_cases.CASES[name] for name in WANTED} | {
    case.name: case
    for case in (
        Case("width 4", width=4, tokens=6, dtype=FP32, shift=("token", FP32)),
        Case("width 516", width=516, tokens=3, batch=1, dtype=FP16, scale=("token", FP16)),
        Case("width 2048", width=2048, tokens=3, batch=1, scale=("token", BF16), shift=("token", BF16)),
        Case("width 4100", width=4100, tokens=2, batch=1, dtype=FP32, scale=("number", FP32), shift=("one", BF16)),
        Case("dual width 16400", width=16400, tokens=1, batch=1, second=True),
    )
}


def normed_in_torchs_order(x: Tensor, shape: Any, weight: None, eps: float) -> Tensor:
    """Compute F.rms_norm with a GPU's distribution over threads. Extended precision and one rounding emulate a fused
    product."""
    width = x.shape[-1]
    groups = F.pad(x.float(), (0, -width % 512)).unflatten(-1, (-1, 128, 4)).numpy().astype(np.longdouble)
    sums = np.zeros((*groups.shape[:-3], 128), np.float32)
    for turn in range(groups.shape[-3]):
        for channel in range(4):
            value = groups[..., turn, :, channel]
            sums = (value * value + sums).astype(np.float32)
    lanes = sums.reshape(*sums.shape[:-1], 4, 32)
    for apart in (16, 8, 4, 2, 1):
        lanes = lanes[..., :apart] + lanes[..., apart:]
    warps = lanes[..., 0]
    total = (warps[..., 0] + warps[..., 2]) + (warps[..., 1] + warps[..., 3])
    inverse = 1 / np.sqrt(total / np.float32(width) + np.float32(eps))  # computed as in the interpreter
    return torch.from_numpy(inverse)[..., None] * x.float()


def hold_to_twin(case: Case, run: Callable[..., Any]) -> None:
    given = arguments(case)
    with mock.patch.object(F, "rms_norm", normed_in_torchs_order):
        expected = shipped_ops()[case.op].reference(*given, **case.scalars)
    hold_bits(case.name, run(*given, **case.scalars), expected)


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    if device == "cpu":
        from kernwright.ops.ltx2_modulate import triton as triton_kernel

        hold_to_twin(case, partial(getattr(triton_kernel, case.op), exact=True))
        return
    given = arguments(case, device)
    expected = shipped_ops()[case.op].reference(*given, **case.scalars)
    hold_bits(case.name, run(*given, **case.scalars, contract="exact"), expected)
