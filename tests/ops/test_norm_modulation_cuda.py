"""The CUDA kernels as far as a machine without a GPU goes: they compile, and the C++ side checks and chooses right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from norm_modulation_cases import BF16, CASES, FP16, FP32

from kernwright.ops.norm_modulation import native
from kernwright.runtime.library import Target, nvcc

needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
SM90 = Target("sm_90")


@pytest.fixture(scope="module")
def plain() -> Any:
    """Loaded without a driver; CPU tensors stand in for those of a GPU, since choosing looks at no content."""
    return native.cuda_library("norm_scale_shift", BF16).load(SM90)


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
        (3072, "vector 8, 1 a thread, kept, 384 threads, 1 rows"),
        (8192, "vector 8, 1 a thread, kept, 1024 threads, 1 rows"),
        (8200, "vector 8, 2 a thread, 544 threads, 1 rows"),
        (16384, "vector 8, 2 a thread, 1024 threads, 1 rows"),
        (16392, "vector 8, streamed, 1024 threads, 1 rows"),
        (65536, "vector 8, streamed, 1024 threads, 1 rows"),
        (128, "vector 8, 1 a thread, kept, 16 threads, 8 rows"),
        (8, "vector 8, 1 a thread, kept, 1 threads, 128 rows"),
        (3074, "vector 2, 8 a thread, 224 threads, 1 rows"),
        (3073, "vector 1, 8 a thread, 416 threads, 1 rows"),
        (65535, "vector 1, streamed, 1024 threads, 1 rows"),
        (1, "vector 1, 8 a thread, 1 threads, 128 rows"),
    ],
)
def test_each_width_has_its_variant(plain: Any, width: int, variant: str) -> None:
    assert chosen(plain, tokens(1, 4, width)) == variant


@needs_nvcc
def test_vectors_are_as_wide_as_every_start_allows(plain: Any) -> None:
    def width_of(*given: Any, **more: Any) -> str:
        return chosen(plain, *given, **more).split(",")[0]

    x = tokens(1, 4, 64)
    assert width_of(x) == "vector 8"
    assert width_of(tokens(1, 4, 66)[..., 2:]) == "vector 2"  # rows 132 bytes apart
    assert width_of(tokens(4 * 64 + 1)[1:].view(1, 4, 64)) == "vector 1"  # starts at an odd element
    assert width_of(x, y=tokens(1, 4, 65)[..., 1:]) == "vector 1"
    assert width_of(x, torch.zeros(66)[2:]) == "vector 2"  # float32: 16 bytes a load would start at 8
    assert width_of(x, torch.zeros(68)[4:]) == "vector 8"
    assert width_of(x, tokens(1)) == "vector 8"  # one number is no vector
    assert width_of(x, weight=tokens(65)[1:]) == "vector 1"
    assert width_of(tokens(300).as_strided((1, 4, 64), (3, 64, 1))) == "vector 8"  # of one batch no step is taken


@needs_nvcc
def test_modulations_are_kept_where_tokens_share_them_and_batches_folded_where_they_are_alike(plain: Any) -> None:
    x = tokens(2, 6, 64)
    assert chosen(plain, x) == "vector 8, 1 a thread, kept, 8 threads, 16 rows"  # per channel: one run of 12 tokens
    assert chosen(plain, x, tokens(2, 64)).endswith("kept, 8 threads, 16 rows, 2 batches")
    assert chosen(plain, x, tokens(2, 6, 64)) == "vector 8, 1 a thread, 8 threads, 16 rows"
    assert chosen(plain, x, tokens(1, 6, 64)).endswith(", 2 batches")  # the second batch begins again
    assert chosen(plain, x, tokens(2, 3, 1, 64)) == "vector 8, 1 a thread, 8 threads, 16 rows"
    assert "kept" not in chosen(plain, x, shift=tokens(2, 3, 1, 64))
    assert chosen(plain, tokens(6, 1, 64), tokens(6, 64)) == "vector 8, 1 a thread, 8 threads, 16 rows"
    assert chosen(plain, tokens(2, 12, 64)[:, :6]).endswith("kept, 8 threads, 16 rows, 2 batches")


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


@needs_nvcc
@pytest.mark.slow
def test_both_ops_every_dtype_and_every_architecture_compile(tmp_path: Any) -> None:
    """Each once: sources are the same for all, and what a dtype changes, an architecture does not."""
    plain, residual = "norm_scale_shift", "residual_norm_scale_shift"
    pairs = [(plain, "sm_75", FP16), (residual, "sm_80", FP32), (plain, "sm_100", BF16), (residual, "sm_90", FP16)]
    for op, architecture, dtype in pairs:
        native.cuda_library(op, dtype).build(Target(architecture), tmp_path)
    assert len(list(tmp_path.glob("*.so"))) == len(pairs)


def test_every_kind_of_call_is_among_the_cases() -> None:
    """The GPU tests run the same cases; this is what they are there to cover."""
    widths = {case.width for case in CASES.values()}
    assert {3072, 3073, 65535, 65536} <= widths
    assert {case.dtype for case in CASES.values()} == {BF16, FP16, FP32}
    assert any(case.gaps for case in CASES.values()) and any(case.tokens == 0 for case in CASES.values())
