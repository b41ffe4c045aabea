"""The CUDA kernels' own code, run on a CPU thread by thread: every case by the judge's rule, without a GPU.

It finds wrong indices, masks, strides, roundings and barriers that not all threads reach, but no errors that only
hardware shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import empty_cases
import folded_cases
import place_cases
import pytest
import torch
from emulation import built
from norm_modulation_cases import BF16, CUDA_CASES, EQUAL_CASES, FP16, FP32, Case, verify
from place_cases import listed
from token_cases import hold_to_oracle

from kernwright.core.registry import shipped_ops
from kernwright.ops.norm_modulation.family import CUDA
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
TYPES = {BF16: "kBFloat16", FP16: "kFloat16", FP32: "kFloat32"}
FOLDED = folded_cases.of("norm_scale_shift", "residual_norm_scale_shift")
# One of every kind of kernel: lean, shifted, both small ones, held with each kind of rows, odd, streamed.
PLACED = [
    "own rows 768", "own rows 3072", "own rows 8192", "torch.bfloat16 own rows 3071 far from zero",
    "torch.bfloat16 odd 517", "torch.bfloat16 odd 5001", "width 128", "width 33", "own rows 20000", "float rows 3072",
    "float tokens 3072", "numbers beside an affine", "torch.bfloat16 mixed odd 5001", "mixed rows 40000",
    "fp32 rows 1280", "fp32 rows 33000", "torch.float32 odd 517",
]  # fmt: skip
UNGATED = ["own rows 3072 without gate", "own rows 5001 without gate"]
# A build takes seconds. float16 differs from bfloat16 only in its conversions, which both ops share.
BUILT = [(BF16, False), (BF16, True), (FP32, False), (FP32, True), (FP16, False)]
Modules = dict[tuple[torch.dtype, bool], Any]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    kinds = {
        (dtype, residual): {"KERNWRIGHT_TYPE": TYPES[dtype], "KERNWRIGHT_RESIDUAL": str(int(residual))}
        for dtype, residual in BUILT
    }
    return built("emulation.cc", CUDA["norm_scale_shift"].sources, kinds, tmp_path_factory.mktemp("emulated"))


def runner(case: Case | folded_cases.Case | empty_cases.Case, emulated: Modules, only_chooses: bool = False) -> Any:
    has_residual = case.op.startswith("residual")
    run = emulated[BF16 if isinstance(case, empty_cases.Case) else case.dtype, has_residual].run

    def call(*tensors: Any, norm_type: str, eps: float, out: Any = None) -> Any:
        outs = listed(out) or [torch.full_like(tensors[0], float("nan")) for _ in range(1 + has_residual)]
        assert run(*tensors, norm_type, eps, *outs, only_chooses)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return call


def built_of(cases: dict[str, Case]) -> list[str]:
    return [name for name, case in cases.items() if (case.dtype, case.residual) in BUILT]


@pytest.mark.parametrize("name", built_of(CUDA_CASES))
def test_every_case_is_close(name: str, emulated: Modules) -> None:
    verify(CUDA_CASES[name], runner(CUDA_CASES[name], emulated))


@pytest.mark.parametrize("name", FOLDED)
def test_more_axes_are_close(name: str, emulated: Modules) -> None:
    folded_cases.verify(FOLDED[name], runner(FOLDED[name], emulated))


@pytest.mark.parametrize("op", ["norm_scale_shift", "residual_norm_scale_shift"])
def test_empty_calls_are_accepted_without_a_launch(op: str, emulated: Modules) -> None:
    for case in empty_cases.CASES.values():
        if case.op == op:
            empty_cases.verify(case, runner(case, emulated))


@pytest.mark.parametrize("name", built_of(EQUAL_CASES))
def test_rows_of_equal_elements_are_exact(name: str, emulated: Modules) -> None:
    hold_to_oracle(EQUAL_CASES[name], runner(EQUAL_CASES[name], emulated))


@pytest.mark.parametrize("norm_type", ["layer", "rms"])
@pytest.mark.parametrize("name", [*PLACED, *(f"residual {name}" for name in PLACED), *UNGATED])
def test_results_may_replace_inputs(name: str, norm_type: str, emulated: Modules) -> None:
    """In some kernels all threads read a token's first element. None of them may read it after another thread has
    stored."""
    case = replace(CUDA_CASES[name], norm_type=norm_type, bias=None)
    parameters, drawn = shipped_ops()[case.op].tensor_parameters, case.tensors()
    given = {own.name: drawn[own.name] for own in parameters}
    place_cases.hold(shipped_ops()[case.op], runner(case, emulated), given, **case.scalars)


def test_every_compiled_kernel_has_its_case(emulated: Modules) -> None:
    """Without float16, whose kernels equal those of bfloat16 except for the conversion."""
    for case in CUDA_CASES.values():
        if case.dtype != FP16:
            tensors = case.tensors()
            parameters = shipped_ops()[case.op].tensor_parameters
            runner(case, emulated, only_chooses=True)(*(tensors[own.name] for own in parameters), **case.scalars)
    left = {kind: str(module.kernels_left()) for kind, module in emulated.items() if kind[0] != FP16}
    assert left == dict.fromkeys(left, "")
