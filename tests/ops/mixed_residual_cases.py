"""Calls of norms with a residual in another dtype than x: the Triton kernels support them, and the sum has x's
dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import norm_modulation_cases
import norm_select_cases
import torch
from token_cases import BF16, FP16, FP32, How, hold
from torch import Tensor


@dataclass(frozen=True)
class Plain(norm_modulation_cases.Case):
    residual: bool = True
    before: torch.dtype = FP32  # dtype of the residual

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        return _with_residual(super().tensors(device), self.before)


@dataclass(frozen=True)
class Select(norm_select_cases.Case):
    residual_gate: How | None = ("row", BF16)
    before: torch.dtype = FP32

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        return _with_residual(super().tensors(device), self.before)


def _with_residual(given: dict[str, Tensor | None], dtype: torch.dtype) -> dict[str, Tensor | None]:
    residual = given["residual"]
    assert residual is not None
    # Values that x's dtype cannot hold, so that a residual that was rounded on its way is detected.
    return given | {"residual": (residual.float() * 1.0009765).to(dtype)}


def cases() -> list[Plain | Select]:
    found: list[Plain | Select] = []
    for dtype, before in ((BF16, FP32), (FP16, FP32), (FP16, BF16), (BF16, FP16), (FP32, BF16)):
        rows = {"scale": ("row", dtype), "shift": ("row", FP32), "dtype": dtype, "before": before}
        found.append(Plain(f"{before} residual of {dtype}", gate=("row", dtype), **rows))
        found.append(Select(f"select {before} residual of {dtype}", dtype=dtype, before=before))
    found.append(Plain("without a gate", norm_type="rms", weight=BF16, width=129))
    found.append(Plain("gaps", gaps=True, width=96, gate=("token", FP32)))
    found.append(Plain("streamed", width=16390, tokens=1, frames=1, gate=("row", BF16)))
    found.append(Plain("none", tokens=0, frames=1))
    return found


CASES = {case.name: case for case in cases()}


def verify(case: Plain | Select, run: Callable[..., Any], device: str = "cpu") -> None:
    hold(case, run, device)
