"""The exact CUDA kernels' own code, run on a CPU thread by thread: bit by bit against a twin that norms as torch does on
a GPU. bfloat16 for all cases, the other dtypes for those that are about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import norm_exact_cases
import pytest
import torch
from emulation import TYPES, built
from norm_modulation_cases import BF16, FP16, FP32, Case
from token_cases import arguments

from kernwright.ops.norm_modulation import exact_native
from kernwright.runtime.library import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
BUILT = [(BF16, False), (BF16, True), (FP32, False), (FP16, True)]  # each dtype, with and without a residual
CASES = {name: case for name, case in norm_exact_cases.CUDA_CASES.items() if (case.dtype, case.residual) in BUILT}
Modules = dict[tuple[torch.dtype, bool], Any]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    kinds = {
        (dtype, residual): {"KERNWRIGHT_TYPE": TYPES[dtype], "KERNWRIGHT_RESIDUAL": str(int(residual))}
        for dtype, residual in BUILT
    }
    headers = (Path(exact_native.__file__).with_name("exact_arguments.h"),)
    return built("norm_exact_emulation.cc", headers, kinds, tmp_path_factory.mktemp("emulated"))


def runner(case: Case, emulated: Modules, only_chooses: bool = False) -> Any:
    run = emulated[case.dtype, case.residual].run

    def call(*tensors: Any, norm_type: str, eps: float) -> Any:
        outs = [torch.full_like(tensors[0], float("nan")) for _ in range(1 + case.residual)]
        if case.residual:
            x, residual, scale, shift, gate, weight, bias = tensors
        else:
            (x, scale, shift, weight, bias), residual, gate = tensors, None, None
        total = outs[1] if case.residual else None
        assert run(x, residual, scale, shift, gate, weight, bias, norm_type, eps, outs[0], total, only_chooses)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return call


@pytest.mark.parametrize("name", CASES)
def test_it_has_the_bits_of_torchs_order(name: str, emulated: Modules) -> None:
    norm_exact_cases.hold_to_twin(CASES[name], runner(CASES[name], emulated))


def test_every_compiled_shape_has_its_case(emulated: Modules) -> None:
    for case in CASES.values():
        runner(case, emulated, only_chooses=True)(*arguments(case), **case.scalars)
    assert {kind: int(module.shapes_left()) for kind, module in emulated.items()} == dict.fromkeys(BUILT, 0)
