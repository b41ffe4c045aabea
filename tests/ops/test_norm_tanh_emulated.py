"""The CUDA kernels' own code, run on a CPU thread by thread: cases by the judge's rule, without a GPU.

Of one dtype with both norms, since a build takes seconds: one norm is a part of two, and the other dtypes' kernels are the
same with another conversion. A GPU runs every case of all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from emulation import TYPES, built
from norm_tanh_cases import CUDA_CASES, Case, verify
from token_cases import BF16, arguments

from kernwright.ops.native_sources import TOKEN_HEADERS
from kernwright.ops.norm_tanh import native
from kernwright.runtime.library import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
KINDS = [(BF16, True)]
Kinds = dict[tuple[torch.dtype, bool], Any]


def kind(case: Case) -> tuple[torch.dtype, bool]:
    return case.dtype, case.scale2 is not None


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    kinds = {own: {"KERNWRIGHT_TYPE": TYPES[own[0]], "KERNWRIGHT_TWICE": str(int(own[1]))} for own in KINDS}
    headers = (Path(native.__file__).with_name("arguments.h"), *TOKEN_HEADERS)
    return built("norm_tanh_emulation.cc", headers, kinds, tmp_path_factory.mktemp("emulated"))


def runner(case: Case, emulated: Kinds, only_chooses: bool = False) -> Any:
    twice, run = case.scale2 is not None, emulated[kind(case)].run

    def call(x: Any, scale: Any, shift: Any, *more: Any, norm_type: str, eps: float) -> Any:
        outs = [torch.full_like(x, float("nan")) for _ in range(1 + twice)]
        scale2, weight, bias, weight2, bias2 = more if twice else (None, *more, None, None)
        y2 = outs[1] if twice else None
        assert run(x, scale, shift, scale2, weight, bias, weight2, bias2, norm_type, eps, outs[0], y2, only_chooses)
        return tuple(outs) if twice else outs[0]

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
