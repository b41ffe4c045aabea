"""The CUDA kernels' own code, run on a CPU thread by thread: every case by the judge's rule, without a GPU.

Without float16: the kernels are norm_modulation's, whose own tests run it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from emulation import built
from plain_norm_cases import BF16, CASES, EQUAL_CASES, FP32, NARROW_CASES, Case, verify
from token_cases import hold_to_oracle

from kernwright.ops.plain_norm.family import CUDA, SOURCES
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
DTYPES = (BF16, FP32)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> dict[torch.dtype, Any]:
    kinds = {dtype: dict(CUDA["rms_norm"].library(dtype).macros) for dtype in DTYPES}
    return built("plain_norm_emulation.cc", SOURCES, kinds, tmp_path_factory.mktemp("emulated"))


def normed(module: Any, x: Any, weight: Any, bias: Any, is_rms: bool, eps: float, y: Any) -> bool:
    rows = (weight,) if is_rms else (weight, bias)
    return bool((module.rms_norm if is_rms else module.layer_norm)(x, *rows, eps, y))


def runner(case: Case, emulated: dict[torch.dtype, Any]) -> Any:
    def call(x: torch.Tensor, weight: Any, bias: Any = None, *, eps: float) -> torch.Tensor:
        y = torch.full_like(x, float("nan"))
        assert normed(emulated[case.dtype], x, weight, bias, case.norm == "rms", eps, y)
        return y

    return call


@pytest.mark.parametrize("name", [name for name, case in (CASES | NARROW_CASES).items() if case.dtype in DTYPES])
def test_every_case_is_close(name: str, emulated: dict[torch.dtype, Any]) -> None:
    case = (CASES | NARROW_CASES)[name]
    verify(case, runner(case, emulated))


@pytest.mark.parametrize("name", [name for name, case in EQUAL_CASES.items() if case.dtype in DTYPES])
def test_rows_of_equal_elements_are_exact(name: str, emulated: dict[torch.dtype, Any]) -> None:
    hold_to_oracle(EQUAL_CASES[name], runner(EQUAL_CASES[name], emulated))


@pytest.mark.parametrize("dtype", DTYPES)
def test_narrow_rows_reach_every_kernel_for_them(dtype: torch.dtype, emulated: dict[torch.dtype, Any]) -> None:
    for case in (case for case in NARROW_CASES.values() if case.dtype == dtype):
        x, weight = case.arguments()
        assert x is not None
        assert normed(emulated[dtype], x, weight, None, True, 1e-6, torch.empty_like(x))
    few = [f"narrow: 8 threads, {vectors} vectors each" for vectors in (1, 2, 4)]
    many = [f"narrow: 16 threads, {vectors} vectors each" for vectors in (1, 2)]
    expected = {own + weight for own in few + many for weight in ("", ", weight")}
    assert set(str(emulated[dtype].narrow_reached()).splitlines()) == expected


@pytest.mark.parametrize("width", [64, 128, 97, 768, 3072, 3073, 20000, 33000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_result_may_replace_x(dtype: torch.dtype, width: int, emulated: dict[torch.dtype, Any]) -> None:
    x, weight = torch.randn(3, width).to(dtype) + 2, torch.randn(width).to(dtype)
    for is_rms in (False, True):
        own, y = x.clone(), torch.empty_like(x)
        assert normed(emulated[dtype], x, weight, None, is_rms, 1e-6, y)
        assert normed(emulated[dtype], own, weight, None, is_rms, 1e-6, own)
        assert torch.equal(own, y)


def test_an_output_with_another_order_of_axes_is_written_correctly(emulated: dict[torch.dtype, Any]) -> None:
    """No two axes merge: x is a slice, and the output is transposed and has gaps."""
    x = torch.randn(3, 5, 6, 16)[:, :4, :5]
    whole = torch.full((5, 4, 3, 24), 7.0)
    y = whole.permute(2, 1, 0, 3)[..., :16]
    assert normed(emulated[FP32], x, None, None, False, 1e-6, y)
    torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (16,), eps=1e-6), atol=1e-5, rtol=1e-5)
    assert (whole[..., 16:] == 7).all()


def test_an_output_with_gaps_keeps_a_dense_input_from_being_one_run(emulated: dict[torch.dtype, Any]) -> None:
    x, whole = torch.randn(4, 5, 16), torch.full((4, 7, 16), 7.0)
    assert normed(emulated[FP32], x, None, None, True, 1e-6, whole[:, :5])
    expected = torch.nn.functional.rms_norm(x, (16,), eps=1e-6)
    torch.testing.assert_close(whole[:, :5], expected, atol=1e-5, rtol=1e-5)
    assert (whole[:, 5:] == 7).all()
