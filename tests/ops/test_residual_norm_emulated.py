"""The CUDA kernels for a sum of two tensors, run on a CPU thread by thread: every case by the judge's rule, without a
GPU. All other forms have tests of their own.

They run in bfloat16, and rows of equal elements in float16 too: the kernels are norm_modulation's, whose own tests run
every dtype.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from emulation import built
from residual_norm_cases import BF16, CASES, EQUAL_CASES, FP16, Case, verify
from token_cases import hold_to_oracle

from kernwright.ops.residual_norm.family import CUDA, SOURCES
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def emulated_of(tmp_path_factory: pytest.TempPathFactory) -> dict[torch.dtype, Any]:
    kinds = {dtype: dict(CUDA["add_norm"].library(dtype).macros) for dtype in (BF16, FP16)}
    return built("residual_norm_emulation.cc", SOURCES, kinds, tmp_path_factory.mktemp("emulated"))


@pytest.fixture(scope="module")
def emulated(emulated_of: dict[torch.dtype, Any]) -> Any:
    return emulated_of[BF16]


def runner(case: Case, emulated: Any) -> Any:
    def call(x: Any, residual: Any, weight: Any, bias: Any = None, *_: Any, norm_type: str = "rms", eps: float) -> Any:
        outs = (x, residual) if case.in_place else tuple(torch.full_like(x, float("nan")) for _ in range(2))
        assert emulated.sum_and_norm(x, residual, weight, bias, norm_type, eps, *outs)
        return outs

    return call


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_sum_of_two and case.dtype == BF16])
def test_every_case_is_close(name: str, emulated: Any) -> None:
    verify(CASES[name], runner(CASES[name], emulated))


@pytest.mark.parametrize("name", EQUAL_CASES)
def test_rows_of_equal_elements_are_exact(name: str, emulated_of: dict[torch.dtype, Any]) -> None:
    case = EQUAL_CASES[name]
    hold_to_oracle(case, runner(case, emulated_of[case.dtype]))


@pytest.mark.parametrize("norm_type", ["layer", "rms"])
@pytest.mark.parametrize(
    "shape", [(1003, 128), (2, 3000), (3, 3071), *((2, width) for width in (1544, 2560, 3080, 3584, 4104, 5120))]
)
def test_rows_in_place(shape: tuple[int, int], norm_type: str, emulated: Any) -> None:
    """Several rows per block, with a last block that is not full. Also one row per block, whose first element all its
    threads read, in shapes that only sums have, from the smallest width to the largest."""
    normed = {"layer": torch.nn.functional.layer_norm, "rms": torch.nn.functional.rms_norm}[norm_type]
    for is_turned in (False, True):
        x, residual = torch.randn(shape, dtype=BF16), torch.randn(shape, dtype=BF16)
        wanted, (y, total) = x + residual, (residual, x) if is_turned else (x, residual)
        assert emulated.sum_and_norm(x, residual, None, None, norm_type, 1e-6, y, total)
        assert torch.equal(total, wanted)
        torch.testing.assert_close(y, normed(wanted, shape[1:], eps=1e-6), atol=0.03, rtol=0.01)


@pytest.mark.parametrize("shape", [(1003, 128), (3, 3072), (3, 3073), (2, 4104), (2, 20000), (1, 65535)])
def test_one_tensor_as_x_and_residual_holds_the_norm_at_the_end(shape: tuple[int, int], emulated: Any) -> None:
    """In the chain, the norm overwrites the sum. Threads must not read the norms of other threads as sums."""
    x = torch.randn(shape, dtype=BF16)
    wanted = torch.nn.functional.rms_norm(x + x, shape[1:], eps=1e-6)
    assert emulated.sum_and_norm(x, x, None, None, "rms", 1e-6, x, x)
    torch.testing.assert_close(x, wanted, atol=0.03, rtol=0.01)


def test_a_sum_of_two_dtypes_is_not_for_these_kernels(emulated: Any) -> None:
    x, residual = torch.randn(4, 64, dtype=BF16), torch.randn(4, 64)
    before = x.clone()
    assert emulated.sum_and_norm(x, residual, None, None, "rms", 1e-6, x, residual) is False
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"residual": torch.zeros(4, 63, dtype=BF16)}, "residual: has another shape than x"),
        ({"weight": torch.zeros(63)}, r"weight: must be \[64\], the width of x"),
        ({"norm_type": "batch"}, "norm_type: is 'layer' or 'rms', not 'batch'"),
        ({"y": torch.zeros(4, 64)}, "out: has another dtype than x"),
        ({"y": torch.zeros(64, dtype=BF16).expand(4, 64)}, "out: is expanded"),
    ],
)
def test_a_wrong_argument_is_named(given: dict[str, Any], named: str, emulated: Any) -> None:
    x = torch.zeros(4, 64, dtype=BF16)
    own = {"x": x, "residual": x, "weight": None, "bias": None, "norm_type": "rms", "eps": 1e-6, "y": x, "sum": x}
    with pytest.raises(ValueError, match=f"^{named}"):
        emulated.sum_and_norm(*(own | given).values())


@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        ((64, 4096), "1 x 64 lean: vector 8"),
        ((64, 1536), "1 x 64 lean: vector 8, 2 a thread, 96"),
        ((64, 1544), "1 x 64 lean sum: vector 8, 2 a thread, 160"),
        ((64, 2560), "1 x 64 lean sum: vector 8, 2 a thread, 160"),
        ((64, 2568), "1 x 64 lean: vector 8, 2 a thread, 192"),
        ((64, 3072), "1 x 64 lean: vector 8, 2 a thread, 192"),
        ((64, 3080), "1 x 64 lean sum: vector 8, 2 a thread, 224"),
        ((64, 3584), "1 x 64 lean sum: vector 8, 2 a thread, 224"),
        ((64, 3592), "1 x 64 lean: vector 8, 2 a thread, 256"),
        ((64, 4104), "1 x 64 lean: vector 8, 2 a thread, 320"),
        ((8192, 5120), "1 x 8192 lean: vector 8, 2 a thread, 320"),
        ((64, 5128), "1 x 64 lean: vector 8, 2 a thread, 512"),
        ((2, 7, 24, 128), "1 x 336 small: vector 8"),
        ((4, 3073), "1 x 4 shifted: vector 8"),
        ((0, 64), ""),
    ],
)
def test_each_shape_has_its_variant_in_place_too(shape: tuple[int, ...], variant: str, emulated: Any) -> None:
    x, residual = torch.empty(shape, dtype=BF16), torch.empty(shape, dtype=BF16)
    weight = torch.ones(shape[-1], dtype=BF16)
    found = [
        str(emulated.variant(x, residual, weight, None, *outs))
        for outs in ((torch.empty_like(x), torch.empty_like(x)), (x, residual))
    ]
    assert found[0] == found[1] and found[0].startswith(variant)


def test_a_tensor_changed_in_place_must_not_overlap_others(emulated: Any) -> None:
    """The error comes before any launch, whatever the dtypes. The same tensor twice is no overlap."""
    memory = torch.zeros(6, 64, dtype=BF16)
    halves, wide = memory[:4], torch.zeros(192)
    for x, residual, weight, named in (
        (halves, memory[1:5], None, "x: overlaps residual"),
        (memory[1:5], halves, None, "x: overlaps residual"),
        (halves.view(2, 2, 64), halves.view(2, 2, 64).transpose(0, 1), None, "x: overlaps residual"),
        (halves, torch.zeros(4, 64, dtype=BF16), memory[3], "x: overlaps weight"),
        (torch.zeros(4, 64, dtype=BF16), halves, memory[0], "residual: overlaps weight"),
        (wide.view(BF16)[64:128].view(2, 32), wide[:64].view(2, 32), None, "x: overlaps residual"),
        (memory[:, :32], memory[:, 31:63], None, "x: overlaps residual"),  # neither tensor covers the other
        (memory.as_strided((4, 32), (31, 1)), torch.zeros(4, 32, dtype=BF16), None, "x: overlaps itself"),
        (torch.zeros(4, 32, dtype=BF16), memory.as_strided((4, 32), (31, 1)), None, "residual: overlaps itself"),
        (memory[:3], memory[3:], None, ""),
        (memory[:, :32], memory[:, 32:], memory[5, :32].clone(), ""),
        (halves, halves, None, ""),
    ):
        if named:
            with pytest.raises(ValueError, match=f"^{named}, and cannot be written"):
                emulated.fused_add_rms_norm_(x, residual, weight, 1e-6)
        else:
            emulated.fused_add_rms_norm_(x, residual, weight, 1e-6)


def test_every_other_form_goes_to_the_general_kernels(emulated: Any) -> None:
    """The general kernels accept it. Here their launches are only counted."""
    x, row = torch.zeros(4, 64, dtype=BF16), torch.ones(4, dtype=BF16)
    before = emulated.handed_on()
    assert emulated.add_norm(x, x, *[None] * 4, "rms", 1e-6, x, x) is True
    assert emulated.fused_add_rms_norm_(x, x.clone(), None, 1e-6) is True
    assert emulated.handed_on() == before
    for residual, second, scale in ((None, None, None), (x, x, None), (x, None, row), (x.float(), None, None)):
        total = x if residual is None else residual
        assert emulated.add_norm(x, residual, None, None, second, scale, "rms", 1e-6, x, total) is True
    assert emulated.fused_add_rms_norm_(x, x.float(), None, 1e-6) is True
    assert emulated.handed_on() == before + 5
    with pytest.raises(ValueError, match=r"^norm_type: is 'layer' or 'rms', not 'batch'"):
        emulated.add_norm(x, None, None, None, None, None, "batch", 1e-6, x, x)
    for own, residual in ((x[:1].expand(4, 64), x.float()), (x, torch.zeros(64).expand(4, 64))):
        with pytest.raises(ValueError, match="is expanded, and cannot be written"):
            emulated.fused_add_rms_norm_(own, residual, None, 1e-6)
