"""The CUDA kernels' own code, run on a CPU thread by thread: cases by the judge's rule, without a GPU.

Of two kinds, since a build takes seconds: float32 alone, and bfloat16 behind a residual, of which the rest is a part. A GPU
runs every case of all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from emulation import TYPES, built
from norm_select_cases import CUDA_CASES, Case, verify
from token_cases import BF16, FP32, arguments

from kernwright.ops.native_sources import TOKEN_HEADERS
from kernwright.ops.norm_modulation import select_native
from kernwright.runtime.library import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
KINDS = [(BF16, True), (FP32, False)]
Kinds = dict[tuple[torch.dtype, bool], Any]


def kind(case: Case) -> tuple[torch.dtype, bool]:
    return case.dtype, case.residual_gate is not None


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    kinds = {own: {"KERNWRIGHT_TYPE": TYPES[own[0]], "KERNWRIGHT_RESIDUAL": str(int(own[1]))} for own in KINDS}
    headers = (Path(select_native.__file__).with_name("select_arguments.h"), *TOKEN_HEADERS)
    return built("norm_select_emulation.cc", headers, kinds, tmp_path_factory.mktemp("emulated"))


def runner(case: Case, emulated: Kinds, only_chooses: bool = False) -> Any:
    residual, run = case.residual_gate is not None, emulated[kind(case)].run

    def call(x: Any, *more: Any, eps: float) -> Any:
        before, (*sets, index, weight, bias) = (more[:2], more[2:]) if residual else ((None, None), more)
        y, total = (torch.full_like(x, float("nan")) for _ in range(2))
        gate = torch.full_like(x, float("nan"), dtype=torch.promote_types(sets[2].dtype, sets[5].dtype))
        sum_out = total if residual else None
        assert run(x, *before, *sets, index, weight, bias, eps, y, sum_out, gate, only_chooses)
        return (y, total, gate) if residual else (y, gate)

    return call


@pytest.mark.parametrize("name", [name for name, case in CUDA_CASES.items() if kind(case) in KINDS])
def test_every_case_is_close(name: str, emulated: Kinds) -> None:
    verify(CUDA_CASES[name], runner(CUDA_CASES[name], emulated))


def test_every_compiled_kernel_has_its_case(emulated: Kinds) -> None:
    for case in CUDA_CASES.values():
        if kind(case) in KINDS:
            runner(case, emulated, only_chooses=True)(*arguments(case), **case.scalars)
    for own, module in emulated.items():
        assert str(module.kernels_left()) == "", own
