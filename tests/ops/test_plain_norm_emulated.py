"""The CUDA kernels' own code, run on a CPU thread by thread: every case by the judge's rule, without a GPU.

But for float16: the kernels are norm_modulation's, whose own tests run it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from emulation import built
from plain_norm_cases import BF16, CASES, FP32, verify

from kernwright.ops.norm_modulation import native as shared
from kernwright.ops.plain_norm import native
from kernwright.runtime.library import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
DTYPES = (BF16, FP32)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> dict[torch.dtype, Any]:
    kinds = {dtype: dict(native.cuda_library(dtype).macros) for dtype in DTYPES}
    headers = (Path(native.__file__).with_name("rows.h"), Path(shared.__file__).with_name("arguments.h"))
    modules = built("plain_norm_emulation.cc", headers, kinds, tmp_path_factory.mktemp("emulated"))
    return {dtype: module.norm for dtype, module in modules.items()}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.dtype in DTYPES])
def test_every_case_is_close(name: str, emulated: dict[torch.dtype, Any]) -> None:
    case = CASES[name]

    def call(x: torch.Tensor, weight: Any, bias: Any = None, *, eps: float) -> torch.Tensor:
        y = torch.full_like(x, float("nan"))
        assert emulated[case.dtype](x, weight, bias, case.norm == "rms", eps, y)
        return y

    verify(case, call)


def test_an_output_that_lies_in_another_order_is_written_where_it_lies(emulated: dict[torch.dtype, Any]) -> None:
    """No two axes merge: x is cut, the output turned around and wider than it is written."""
    x = torch.randn(3, 5, 6, 16)[:, :4, :5]
    whole = torch.full((5, 4, 3, 24), 7.0)
    y = whole.permute(2, 1, 0, 3)[..., :16]
    assert emulated[FP32](x, None, None, False, 1e-6, y)
    torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (16,), eps=1e-6), atol=1e-5, rtol=1e-5)
    assert (whole[..., 16:] == 7).all()


def test_an_output_with_gaps_keeps_a_dense_input_from_being_one_run(emulated: dict[torch.dtype, Any]) -> None:
    x, whole = torch.randn(4, 5, 16), torch.full((4, 7, 16), 7.0)
    assert emulated[FP32](x, None, None, True, 1e-6, whole[:, :5])
    expected = torch.nn.functional.rms_norm(x, (16,), eps=1e-6)
    torch.testing.assert_close(whole[:, :5], expected, atol=1e-5, rtol=1e-5)
    assert (whole[:, 5:] == 7).all()
