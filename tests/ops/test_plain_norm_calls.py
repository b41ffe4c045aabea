"""The norms as a user calls them on any machine: what is refused, and how it is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from plain_norm_cases import BF16

import kernwright
from kernwright import ops
from kernwright.ops.plain_norm.family import OPS
from kernwright.runtime.dispatch import CannotRun, Fallback


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((torch.zeros(()),), "x: has no dimension to norm over"),
        ((torch.zeros(2, 8, dtype=torch.int64),), "x: is torch.int64, not floating point"),
        ((torch.zeros(2, 8), torch.zeros(7)), r"weight: is \[7\], it must be \[8\], the width of x"),
        ((torch.zeros(2, 8), torch.zeros(8), torch.zeros(1, 8)), r"bias: is \[1, 8\], it must be \[8\]"),
        ((torch.zeros(2, 8), torch.zeros(8, device="meta")), "weight: is on meta, x is on cpu"),
    ],
)
def test_a_wrong_argument_is_named_by_every_backend(arguments: Any, named: str) -> None:
    for backend in ("torch", None):
        with pytest.raises(ValueError, match=named):
            ops.layer_norm(*arguments, backend=backend)


@pytest.mark.parametrize(
    ("x", "why"),
    [
        (torch.zeros(8, 2).t(), "x has a last axis with gaps"),
        (torch.zeros(2, 65537), "x is 65537 wide, over 65536"),
        (torch.zeros(2, 8, dtype=torch.float64), "x is torch.float64"),
        (torch.zeros([1] * 17), "x has 17 dimensions, over 16"),
    ],
)
def test_what_the_kernels_do_not_take_is_said(x: torch.Tensor, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that the device is no reason
    answers = {answer.implementation.backend: answer for answer in kernwright.explain("layer_norm", x).answers}
    assert answers["triton"].refusal == why and answers["torch"].refusal is None
    with pytest.raises(CannotRun, match=why):
        ops.layer_norm(x, backend="triton")


def test_a_fallback_is_said_once_and_an_error_in_strict() -> None:
    x = torch.randn(2, 3, 5, dtype=BF16)
    OPS["rms_norm"].dispatcher._told.clear()
    OPS["rms_norm"].dispatcher._chosen.clear()
    with pytest.warns(Fallback, match=r"rms_norm runs its reference: cuda \(close\): x is on cpu"):
        ops.rms_norm(x)
    with kernwright.strict(), pytest.raises(CannotRun, match="rms_norm would run its reference"):
        ops.rms_norm(x)
    with pytest.warns(Fallback, match="is close, where exact was asked for"):
        y = ops.rms_norm(x, contract="exact")
    assert torch.equal(y, torch.nn.functional.rms_norm(x, (5,), eps=1e-6))
