"""The CUDA kernels as far as possible without a GPU: the C++ code checks and chooses correctly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import tvm_ffi
from builds import shared_host_code
from norm_modulation_cases import BF16, CASES, FP16, FP32

from kernwright.ops.norm_modulation.family import CUDA
from kernwright.runtime.target import Target, nvcc

needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
SM90 = Target("sm_90")


@pytest.fixture(scope="module")
def plain() -> Any:
    """Load the library without a driver. CPU tensors replace those of a GPU, because the choice reads no contents."""
    return tvm_ffi.load_module(str(shared_host_code(CUDA["norm_scale_shift"].library(BF16), SM90)))


def chosen(library: Any, x: torch.Tensor, scale: torch.Tensor | None = None, **more: Any) -> str:
    scale = x.new_zeros(x.shape[-1]) if scale is None else scale
    weight, bias, shift = more.get("weight"), more.get("bias"), more.get("shift", scale)
    return str(library.variant(x, scale, shift, weight, bias, "layer", 1e-6, more.get("y", x)))


def tokens(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


@needs_nvcc
@pytest.mark.parametrize(
    ("width", "variant"),
    [
        (8, "small: vector 8, 8 threads, 16 x 1 tokens"),
        (128, "small: vector 8, 16 threads, 8 x 1 tokens"),
        (256, "small: vector 8, 32 threads, 4 x 1 tokens"),
        (264, "lean: vector 8, 1 a thread, 96 threads"),
        (1024, "lean: vector 8, 2 a thread, 96 threads"),
        (1536, "lean: vector 8, 2 a thread, 96 threads"),
        (2048, "lean: vector 8, 4 a thread, 64 threads"),
        (2056, "lean: vector 8, 3 a thread, 128 threads"),
        (3072, "lean: vector 8, 3 a thread, 128 threads"),
        (4096, "lean: vector 8, 4 a thread, 128 threads"),
        (5120, "lean: vector 8, 4 a thread, 160 threads"),
        (6144, "lean: vector 8, 3 a thread, 256 threads"),
        (8192, "lean: vector 8, 4 a thread, 256 threads"),
        (8200, "held: vector 8, 4 a thread, own rows, 288 threads"),
        (16384, "held: vector 8, 4 a thread, own rows, 512 threads"),
        (16392, "held: vector 8, 8 a thread, own rows, 288 threads"),
        (65536, "held: vector 8, 8 a thread, own rows, 1024 threads"),
        (1, "small: vector 1, 32 threads, 4 x 1 tokens"),
        (129, "shifted: vector 8, 2 a thread, 32 threads"),
        (3073, "shifted: vector 8, 2 a thread, 224 threads"),
        (8186, "odd: vector 1, 640 threads"),
        (13311, "odd: vector 1, 1024 threads"),
        (65535, "streamed: vector 1, 1024 threads"),
    ],
)
def test_each_width_has_its_variant(plain: Any, width: int, variant: str) -> None:
    assert chosen(plain, tokens(1, 4, width)) == variant


@needs_nvcc
def test_vectors_are_as_wide_as_every_start_allows(plain: Any) -> None:
    def width_of(*given: Any, **more: Any) -> str:
        return chosen(plain, *given, **more).split(",")[0].removeprefix("small: ")

    x = tokens(1, 4, 64)
    assert width_of(x) == "vector 8"
    assert width_of(tokens(1, 4, 66)[..., 2:]) == "vector 1"  # rows are 132 bytes apart
    assert width_of(tokens(4 * 64 + 1)[1:].view(1, 4, 64)) == "vector 1"  # starts at an odd element
    assert width_of(x, y=tokens(1, 4, 65)[..., 1:]) == "vector 1"
    assert width_of(x, torch.zeros(66)[2:]) == "vector 1"  # in float32, 16-byte loads would start at offset 8
    assert width_of(x, torch.zeros(68)[4:]) == "vector 8"
    assert width_of(x, tokens(1)) == "vector 8"  # a single number limits no vector
    assert width_of(x, weight=tokens(65)[1:]) == "vector 1"
    # With one batch its stride does not matter.
    assert width_of(tokens(300).as_strided((1, 4, 64), (3, 64, 1))) == "vector 8"


@needs_nvcc
def test_equal_batches_are_folded_and_frames_become_batches(plain: Any) -> None:
    x, one_run = tokens(2, 6, 64), "small: vector 8, 8 threads, 16 x 1 tokens"
    assert chosen(plain, x) == one_run  # per channel: one run of 12 tokens
    assert chosen(plain, x, tokens(2, 64)) == f"{one_run}, 2 batches"
    assert chosen(plain, x, tokens(2, 6, 64)) == one_run
    assert chosen(plain, x, tokens(1, 6, 64)) == f"{one_run}, 2 batches"  # the second batch starts again
    assert chosen(plain, x, tokens(2, 3, 1, 64)) == f"{one_run}, 6 batches"
    assert chosen(plain, x, tokens(2, 3, 1, 64), shift=tokens(2, 6, 64)) == f"{one_run}, 6 batches"
    assert chosen(plain, x, tokens(2, 3, 1, 64), shift=tokens(2, 2, 1, 64)) == one_run  # no common length of a frame
    assert chosen(plain, x, tokens(1, 3, 1, 64)) == f"{one_run}, 2 batches"
    assert chosen(plain, tokens(6, 1, 64), tokens(6, 64)) == one_run
    assert chosen(plain, tokens(2, 12, 64)[:, :6]) == f"{one_run}, 2 batches"


@needs_nvcc
def test_rows_of_modulation_choose_the_kernel(plain: Any) -> None:
    def rows(scale: torch.Tensor, **more: Any) -> str:
        return ", ".join(chosen(plain, tokens(1, 6, 3072), scale, **more).split(", ")[1:])

    own, wide, number = tokens(3072), torch.zeros(3072), tokens(1)
    assert rows(own) == rows(tokens(1, 6, 3072)) == "3 a thread, 128 threads"
    assert rows(tokens(1, 3, 1, 3072)) == "3 a thread, 128 threads, 3 batches"
    assert rows(wide) == "5 a thread, float rows, 96 threads"
    assert rows(torch.zeros(1, 6, 3072)) == "2 a thread, float rows early, 192 threads"
    assert rows(number, weight=wide, bias=wide) == "5 a thread, float rows, 96 threads"
    for mixed in (rows(number), rows(own, shift=wide), rows(own, weight=own), rows(number, weight=own)):
        assert mixed == "4 a thread, any rows, 96 threads"


@needs_nvcc
def test_unaligned_tokens_are_shifted_if_all_have_the_same_alignment(plain: Any) -> None:
    def kind(x: torch.Tensor, y: torch.Tensor, *given: Any) -> str:
        return chosen(plain, x, *given, y=y).split(":")[0]

    x, wide = tokens(2, 6, 3073), tokens(2, 6, 3081)
    # A shift by 8 elements keeps the alignment.
    assert kind(x, tokens(2, 6, 3073)) == kind(x, wide[..., 8:]) == "shifted"
    assert kind(x, tokens(2, 6, 3080)[..., 7:]) == "odd"  # rows are 3080 elements apart
    assert kind(x, wide[..., 1:3074]) == "odd"  # starts at another alignment
    assert kind(x, tokens(2, 6, 3073), tokens(2, 3073)) == "shifted"  # a row of modulation may start anywhere
    assert kind(x, tokens(2, 6, 3073), torch.zeros(3073)) == "odd"


@needs_nvcc
def test_many_small_tokens_and_many_with_float_rows_go_in_pairs(plain: Any) -> None:
    def of(count: int, width: int, *scale: torch.Tensor) -> str:
        # Uses no memory, because the contents do not matter.
        return chosen(plain, torch.empty(1, count, width, dtype=BF16), *scale)

    assert of(800, 5120, torch.zeros(5120)) == "shared: vector 8, 2 a thread, 2 tokens, 320 threads"
    assert of(800, 3072, torch.zeros(3072)) == "shared: vector 8, 2 a thread, 2 tokens, 192 threads"
    assert of(799, 5120, torch.zeros(5120)).startswith("held")
    assert of(800, 5120, torch.zeros(1, 800, 5120)).startswith("held")  # each token has its own row
    assert of(12_500, 128).endswith("8 x 1 tokens")
    assert of(12_501, 128).endswith("8 x 2 tokens")
    assert of(648_720, 128).endswith("8 x 2 tokens")


@needs_nvcc
def test_it_answers_no_and_launches_nothing_for_a_tensor_that_is_not_its_own(plain: Any) -> None:
    x, d = tokens(1, 4, 64), tokens(64)
    y = torch.full_like(x, 7.0)
    assert plain.norm_scale_shift(x, d, d, None, None, "layer", 1e-6, y) is False
    assert (y == 7).all()
    assert chosen(plain, x.double()) == "none"
    assert chosen(plain, tokens(1, 4, 65537)) == "none"


@needs_nvcc
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"scale": tokens(63)}, "scale: has 63 channels, x has 64"),
        ({"shift": tokens(3, 64)}, "shift: has 3 where x has 2 batch entries"),
        ({"scale": tokens(2, 4, 1, 64)}, "scale: 6 tokens do not divide into 4 frames"),
        ({"weight": tokens(63)}, r"weight: must be \[64\]"),
        ({"bias": tokens(64)}, "bias: comes only with a weight"),
        ({"y": tokens(2, 6, 63)}, "out: has another shape than x"),
        ({"scale": torch.zeros(64, dtype=torch.int64)}, "scale: is no floating-point tensor"),
    ],
)
def test_a_wrong_argument_is_named(plain: Any, changed: dict[str, torch.Tensor], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        chosen(plain, tokens(2, 6, 64), **changed)


def test_every_kind_of_call_is_among_the_cases() -> None:
    """The GPU tests run the same cases, which must cover every kind."""
    widths = {case.width for case in CASES.values()}
    assert {3072, 3073, 65535, 65536} <= widths
    assert {case.dtype for case in CASES.values()} == {BF16, FP16, FP32}
    assert any(case.gaps for case in CASES.values()) and any(case.tokens == 0 for case in CASES.values())
