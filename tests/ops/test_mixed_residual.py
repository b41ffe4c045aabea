"""Residuals in another dtype than x."""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module

import pytest
import torch
from compiled_kernels import ptx_of
from interpreted_cases import interpreted_families
from mixed_residual_cases import CASES, FP16, FP32, verify
from token_cases import BF16, arguments

import kernwright
from kernwright import ops
from kernwright.runtime.target import compiler


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    pytest.importorskip("triton")
    return interpreted_families(("mixed_residual",))["mixed_residual"]


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_close_in_triton(name: str, outcomes: dict[str, str | None]) -> None:
    assert outcomes[name] is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_every_case_is_close_on_a_gpu(name: str) -> None:
    case = CASES[name]
    verify(case, partial(getattr(ops, case.op), backend="triton"), "cuda")
    with kernwright.preferring(strict=True):  # so that no other implementation runs
        verify(case, getattr(ops, case.op), "cuda")


@pytest.mark.parametrize("name", CASES)
def test_native_kernels_decline_with_a_reason_and_triton_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that tensors of a CPU are no reason to refuse
    case = CASES[name]
    found = kernwright.explain(case.op, *arguments(case), **case.scalars)
    assert found.chosen is not None and found.chosen.backend == "triton"
    natives = [answer for answer in found.answers if answer.implementation.backend == "cpu"]
    assert all(str(answer.refusal).startswith("residual is torch.") for answer in natives)


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
@pytest.mark.filterwarnings("ignore::kernwright.Fallback")
def test_a_repeated_call_with_another_residual_dtype_is_right() -> None:
    x, row = torch.randn(2, 6, 64).to(BF16), torch.randn(64)
    for before in (BF16, FP32, BF16, FP16):
        residual = torch.randn(2, 6, 64).to(before)
        y, total = ops.residual_norm_scale_shift(x, residual, row, row)
        assert total.dtype == BF16 and torch.equal(total, (residual + x).to(BF16))
        wanted, _ = ops.residual_norm_scale_shift(x, residual, row, row, backend="torch")
        torch.testing.assert_close(y, wanted, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("module", "kernel", "op", "dtype", "before"),
    [
        ("norm_modulation.triton", "norm_modulate", "residual_norm_scale_shift", FP16, BF16),
        ("norm_modulation.exact_triton", "norm_modulated_exactly", "residual_norm_scale_shift", FP16, BF16),
        ("residual_norm.triton", "add_norm_rows", "add_norm", BF16, FP16),
    ],
)
def test_a_sum_of_both_half_widths_is_computed_in_float32(
    module: str, kernel: str, op: str, dtype: torch.dtype, before: torch.dtype
) -> None:
    """LLVM would compute a float16 result in float16, where a bfloat16 number may overflow or vanish."""
    pytest.importorskip("triton")
    own = import_module(f"kernwright.ops.{module}")
    x, residual = torch.zeros(1, 8, 512, dtype=dtype), torch.zeros(1, 8, 512, dtype=before)
    rows = () if op == "add_norm" else (torch.zeros(512), torch.zeros(512, dtype=BF16))
    ptx = ptx_of(own, kernel, lambda: getattr(own, op)(x, residual, *rows))
    assert not re.search(r"\b(add|mul|fma)\.(rn\.)?f16", ptx)
