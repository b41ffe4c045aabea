"""The norms' CUDA library as far as possible without a GPU: the C++ code checks and chooses correctly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import tvm_ffi
from builds import shared_host_code
from plain_norm_cases import BF16, CASES, FP16, FP32

from kernwright.ops.plain_norm.family import CUDA
from kernwright.runtime.target import Target, nvcc

needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
SM90 = Target("sm_90")


@pytest.fixture(scope="module")
def library() -> Any:
    """Load the library without a driver. CPU tensors replace those of a GPU, because the choice reads no contents."""
    return tvm_ffi.load_module(str(shared_host_code(CUDA["rms_norm"].library(BF16), SM90)))


def rows(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


def chosen(library: Any, x: torch.Tensor, weight: Any = None, bias: Any = None, y: Any = None) -> str:
    return str(library.variant(x, weight, bias, 1e-6, torch.empty_like(x) if y is None else y))


@needs_nvcc
@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        ((4, 3072), "1 x 4 lean: vector 8, 3 a thread, 128 threads"),
        ((4, 8200), "1 x 4 held: vector 8, 4 a thread, own rows, 288 threads"),
        ((4, 65536), "1 x 4 held: vector 8, 8 a thread, own rows, 1024 threads"),
        ((2, 4, 24, 128), "1 x 192 small: vector 8, 16 threads, 8 x 1 tokens"),  # small rows: several per block
        ((16384, 128), "1 x 16384 small: vector 8, 16 threads, 8 x 2 tokens"),
        ((16384, 64), "1 x 16384 small: vector 8, 8 threads, 16 x 1 tokens"),
        ((4, 3073), "1 x 4 shifted: vector 8, 2 a thread, 224 threads"),
        ((96,), "1 x 1 small: vector 8, 16 threads, 8 x 1 tokens"),
        ((0, 64), ""),
    ],
)
def test_each_shape_has_its_variant(library: Any, shape: tuple[int, ...], variant: str) -> None:
    assert chosen(library, rows(*shape)) == variant


@needs_nvcc
def test_rms_norms_of_narrow_rows_have_kernels_of_their_own(library: Any) -> None:
    def of(x: torch.Tensor, weight: Any = None) -> str:
        return str(library.rms_variant(x, weight, 1e-6, torch.empty_like(x)))

    d = rows(128)
    assert of(rows(1320, 128), d) == "1 x 1320 narrow: 8 threads, 2 vectors each, weight"
    assert of(rows(16384, 128)) == "1 x 16384 narrow: 8 threads, 2 vectors each"
    assert of(rows(200_000, 128), d) == "1 x 200000 narrow: 16 threads, 1 vectors each, weight"
    heads = rows(2, 7, 72, 128)[:, :, 24:48]  # the heads of one of three projections
    assert of(heads, d) == "14 x 24 narrow: 8 threads, 2 vectors each, weight"
    assert of(rows(4, 64)) == "1 x 4 narrow: 8 threads, 1 vectors each"
    x = rows(4, 128)
    for other in (of(rows(4, 96)), of(x, d.float()), of(rows(4, 130)[:, 2:]), of(x, rows(129)[1:])):
        assert "small" in other


@needs_nvcc
def test_axes_are_merged_if_every_tensor_allows_it(library: Any) -> None:
    def runs(x: torch.Tensor, y: Any = None) -> list[str]:
        return [" ".join(line.split(" ")[:3]) for line in chosen(library, x, y=y).splitlines()]

    packed = rows(2, 7, 3 * 24, 128)[:, :, 24:48]
    assert runs(packed) == ["14 x 24"]  # batch and token are one run, heads another
    assert runs(rows(2, 24, 7, 128).transpose(1, 2)) == ["1 x 336"]  # transposed, and so is the output
    assert runs(rows(2, 24, 7, 128).transpose(1, 2), y=rows(2, 7, 24, 128)) == ["7 x 24"] * 2
    assert runs(rows(4, 6, 64)[:, :5]) == ["4 x 5"]
    assert runs(rows(4, 5, 64), y=rows(4, 6, 64)[:, :5]) == ["4 x 5"]
    assert runs(rows(1, 64).expand(5, 64)) == ["1 x 5"]
    assert runs(rows(2, 7, 3 * 4, 128)[:, :, 4:8]) == ["4 x 14"]  # these few heads would leave a block half empty
    assert runs(rows(3, 22, 19, 64)[:2, :21, :18]) == ["21 x 18"] * 2  # the host loops over the shortest axis
    assert runs(rows(300).as_strided((1, 4, 64), (3, 64, 1))) == ["1 x 4"]  # with one batch its stride does not matter


@needs_nvcc
def test_vectors_are_as_wide_as_every_start_allows(library: Any) -> None:
    def width_of(*given: Any, **more: Any) -> str:
        return chosen(library, *given, **more).split(",")[0].split("vector ")[1]

    x = rows(4, 64)
    assert width_of(rows(4, 66)[..., 2:]) == "1"  # rows are 132 bytes apart
    assert width_of(rows(4 * 64 + 1)[1:].view(4, 64)) == "1"  # starts at an odd element
    assert width_of(x, y=rows(4, 65)[..., 1:]) == "1"
    assert width_of(x, torch.zeros(66)[2:]) == "1"  # in float32, 16-byte loads would start at offset 8
    assert width_of(x, torch.zeros(68)[4:], torch.zeros(64)) == "8"
    assert width_of(x, None, rows(65)[1:]) == "1"


@needs_nvcc
def test_rows_go_in_pairs_where_they_fill_their_blocks(library: Any) -> None:
    packed = torch.empty(2000, 3 * 32, 128, dtype=BF16)  # uses no memory, because the contents do not matter
    assert chosen(library, packed[:, 32:64]) == "2000 x 32 small: vector 8, 16 threads, 8 x 2 tokens"
    assert chosen(library, packed[:, 24:48]) == "2000 x 24 small: vector 8, 16 threads, 8 x 1 tokens"


@needs_nvcc
def test_a_float32_affine_of_half_width_rows_has_a_kernel_of_its_own(library: Any) -> None:
    x, wide = rows(4, 3072), torch.zeros(3072)
    assert chosen(library, x, rows(3072), rows(3072)).startswith("1 x 4 lean: ")
    assert chosen(library, x, wide, wide).endswith("5 a thread, float rows, 96 threads")
    assert chosen(library, x, wide, rows(3072)).endswith("4 a thread, any rows, 96 threads")


@needs_nvcc
def test_it_answers_no_and_launches_nothing_for_a_tensor_that_is_not_its_own(library: Any) -> None:
    x = rows(4, 64)
    y = torch.full_like(x, 7.0)
    assert library.layer_norm(x, None, None, 1e-6, y) is False
    assert library.rms_norm(x, None, 1e-6, y) is False
    assert (y == 7).all()
    for other in (x.double(), rows(4, 65537), rows(64, 4).t(), rows(*[1] * 17)):
        assert chosen(library, other) == "none"
    assert chosen(library, x, rows(128)[::2]) == "none"


@needs_nvcc
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"x": torch.zeros(())}, "x: has no dimension to norm over"),
        ({"x": torch.zeros(4, 64, dtype=torch.int32)}, "x: is no floating-point tensor"),
        ({"weight": rows(63)}, r"weight: must be \[64\], the width of x"),
        ({"bias": rows(1, 64)}, r"bias: must be \[64\], the width of x"),
        ({"y": rows(4, 63)}, "out: has another shape than x"),
        ({"y": rows(4, 64, dtype=FP32)}, "out: has another dtype than x"),
    ],
)
def test_a_wrong_argument_is_named(library: Any, given: dict[str, torch.Tensor], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        chosen(library, **{"x": rows(4, 64), **given})


def test_every_kind_of_call_is_among_the_cases() -> None:
    """The GPU tests run the same cases, which must cover every kind."""
    assert {case.dtype for case in CASES.values()} == {BF16, FP16, FP32}
    assert {128, 3072, 3073, 65535, 65536} <= {case.shape[-1] for case in CASES.values()}
    assert {"turned", "packed", "gaps", "cut", "expanded"} <= {case.layout for case in CASES.values()}
    assert len(CASES) < 60
