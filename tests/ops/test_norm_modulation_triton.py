"""The Triton kernels: every case in the interpreter by the judge's rule, and compiled for an H200 without one."""

from __future__ import annotations

import os

import pytest
import torch
from compiled_kernels import narrow_accesses, ptx_of
from interpreted_cases import interpreted
from interpreter_server import run_interpreted
from norm_modulation_cases import BF16, CASES, Case
from token_cases import arguments

from kernwright.core.errors import KernwrightError

pytest.importorskip("triton")
# In the interpreter a program takes milliseconds.
INTERPRETED = [name for name in CASES if not name.endswith("many tokens")]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    return interpreted("norm_modulation", INTERPRETED)


@pytest.mark.parametrize("name", INTERPRETED)
def test_every_case_is_close(name: str, outcomes: dict[str, str | None]) -> None:
    assert outcomes[name] is None


def test_a_widths_shape_covers_it() -> None:
    from kernwright.ops._shared.triton_tokens import HELD, shape_of

    for width in (1, 16, 17, 511, 512, 513, 3072, HELD, HELD + 1, 65536):
        shape = shape_of("norm_scale_shift", torch.empty(1, width))
        assert shape.block >= width or not shape.held_whole
        assert shape.held_whole == (width <= HELD)
        assert shape.rows * shape.block <= 32 * 32 * 16 * 2  # at most 32 values per thread of 16 warps


@pytest.mark.parametrize(("width", "residual"), [(3072, False), (3072, True), (128, True), (65536, True)])
def test_it_compiles_for_an_h200_without_one(width: int, residual: bool) -> None:
    from kernwright.ops.norm_modulation import triton as triton_kernel

    case = Case(f"width {width}", width=width, weight=BF16, bias=BF16, residual=residual, gate=("batch", BF16))
    call = getattr(triton_kernel, case.op)
    ptx = ptx_of(triton_kernel, "norm_modulate", lambda: call(*arguments(case), **case.scalars))
    loads, stores = (narrow_accesses(ptx, access) for access in ("ld.global", "st.global"))
    # 16 bytes at a time, except for a weight and a bias that several small tokens of a program share
    assert not stores and (not loads or (width == 128 and len(loads) <= 2)), loads


def test_prefer_triton_works_on_a_cpu_with_the_interpreter() -> None:
    code = (
        "import torch, kernwright; from kernwright import ops\n"
        "x, d = torch.randn(1, 4, 32), torch.randn(32)\n"
        "with kernwright.preferring('triton'):\n"
        "    y = ops.norm_scale_shift(x, d, d)\n"
        "    print(kernwright.explain('norm_scale_shift', x, d, d).chosen)\n"
        "print(torch.allclose(y, ops.norm_scale_shift(x, d, d, backend='torch'), atol=1e-5))"
    )
    assert run_interpreted(code).split("\n")[:2] == ["triton (close)", "True"]


def test_without_the_interpreter_a_cpu_tensor_is_refused() -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("the interpreter is on")
    from kernwright import ops

    with pytest.raises(KernwrightError, match=r"triton \(close\): x is on cpu"):
        ops.norm_scale_shift(torch.zeros(1, 2, 8), torch.zeros(8), torch.zeros(8), backend="triton")
