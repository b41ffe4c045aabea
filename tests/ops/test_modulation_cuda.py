"""The modulations' CUDA library as far as possible without a GPU: its kernels fuse no products, and the C++ code checks
and chooses."""

from __future__ import annotations

from typing import Any

import kernel_checks
import pytest
import torch
import tvm_ffi
from builds import shared_host_code
from kernel_checks import PRODUCTS, Check
from modulation_cases import BF16, FP32

from kernwright.core.registry import shipped_ops
from kernwright.ops.modulation.family import CUDA
from kernwright.runtime.target import Target, nvcc

needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
SM90 = Target("sm_90")


@pytest.fixture(scope="module")
def plain() -> Any:
    """Load the library without a driver. CPU tensors replace those of a GPU, because the choice reads no contents."""
    return tvm_ffi.load_module(str(shared_host_code(CUDA["scale_shift"].library(BF16, BF16), SM90)))


def tokens(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


def chosen(library: Any, x: torch.Tensor, scale: torch.Tensor | None = None, **more: Any) -> str:
    scale = x.new_zeros(x.shape[-1]) if scale is None else scale
    return str(library.scale_shift_variant(x, scale, more.get("shift", scale), 1.0, more.get("y", x)))


@needs_nvcc
@pytest.mark.parametrize(
    ("sizes", "variant"),
    [
        ((1, 19, 3072), "flat: scale row, shift row, rounded"),
        ((1, 63, 3072), "flat: scale row, shift row, rounded"),
        ((1, 64, 3072), "flat: scale row, shift row, rounded"),
        ((1, 4096, 128), "flat: scale row, shift row, rounded"),
        ((1, 4, 3074), "flat: scale row, shift row, rounded, ragged"),
        ((1, 4, 3073), "flat: scale row, shift row, rounded, ragged"),
        # For a single token, one row per batch is as dense as x.
        ((1, 1, 64), "flat: scale dense, shift dense, rounded"),
        # The width is a multiple of no vector.
        ((1, 4, 7), "tiled: vector 1, 8 tokens a thread, streams both, 8 x 32 threads"),
        ((1, 4, 1), "tiled: vector 1, 8 tokens a thread, streams both, 1 x 256 threads"),
    ],
)
def test_each_size_has_its_variant(plain: Any, sizes: tuple[int, ...], variant: str) -> None:
    assert chosen(plain, tokens(*sizes)) == variant


@needs_nvcc
def test_tokens_with_gaps_have_vectors_as_wide_as_alignment_allows(plain: Any) -> None:
    def width_of(*given: Any, **more: Any) -> str:
        return chosen(plain, *given, **more).split(",")[0]

    x, apart = tokens(1, 4, 64), tokens(1, 4, 128)[..., :64]
    assert width_of(apart) == "tiled: vector 8"
    assert width_of(tokens(1, 4, 66)[..., 2:]) == "tiled: vector 2"  # rows are 132 bytes apart
    assert width_of(tokens(4 * 64 + 1)[1:].view(1, 4, 64)) == "tiled: vector 1"  # starts at an odd element
    assert width_of(x, y=tokens(1, 4, 65)[..., 1:]) == "tiled: vector 1"
    # In float32, 16-byte loads would start at offset 8.
    assert width_of(apart, torch.zeros(66)[2:]) == "tiled: vector 2"
    assert width_of(apart, torch.zeros(68)[4:]) == "tiled: vector 8"
    assert width_of(x, shift=tokens(1)) == "tiled: vector 8"  # a single number limits no vector
    strided = tokens(300).as_strided((1, 4, 64), (3, 64, 1))
    assert width_of(strided) == "flat: scale row"  # with one batch its stride does not matter
    assert width_of(apart, tokens(66)[2:]) == "tiled: vector 2"


@needs_nvcc
def test_shared_rows_are_read_once_and_equal_batches_are_one_run(plain: Any) -> None:
    def tail(*given: Any, **more: Any) -> str:
        return chosen(plain, *given, **more).removeprefix("flat: ").replace(", rounded", "")

    x = tokens(2, 6, 64)
    rows, frames = "scale row, shift row", tokens(2, 3, 1, 64)
    assert tail(x) == rows  # per channel: one run of 12 tokens
    assert tail(x, tokens(2, 64)) == f"{rows}, 2 batches"
    assert tail(x, tokens(64), shift=tokens(2, 6, 64)) == "scale row, shift dense"
    assert tail(x, tokens(2, 6, 64)) == "scale dense, shift dense"
    assert tail(x, tokens(2, 6, 192)[..., 64:128]) == "scale stepped, shift stepped"
    assert tail(x, tokens(1, 6, 64)) == "scale dense, shift dense, 2 batches"  # the second batch starts again
    assert tail(x, frames) == f"{rows}, 6 batches"  # frames act as batches
    assert tail(x, frames, shift=tokens(2, 6, 64)) == "scale row, shift dense, 6 batches"
    assert tail(x, frames, shift=tokens(2, 2, 1, 64)).startswith("tiled: ")  # more than one kind of row
    assert tail(tokens(6, 1, 64), tokens(6, 64)) == "scale dense, shift dense"
    assert tail(tokens(2, 12, 64)[:, :6]) == f"{rows}, 2 batches"
    wide = tokens(2, 6, 64, dtype=FP32)
    assert tail(x, wide[0, 0], shift=x) == "scale float row, shift dense"
    assert tail(x, wide) == "scale float stepped, shift float stepped"
    assert tail(x, wide[0, 0], shift=tokens(64)).startswith("tiled: ")  # two dtypes


@needs_nvcc
def test_only_a_run_of_vectors_is_a_flat_problem(plain: Any) -> None:
    def is_flat(x: torch.Tensor, *given: Any, **more: Any) -> bool:
        return chosen(plain, x, *given, **more).startswith("flat: ")

    odd = tokens(1, 6, 33)
    assert is_flat(odd) and is_flat(odd, tokens(34)[1:])  # rows may start anywhere
    assert is_flat(odd, torch.zeros(33)) and is_flat(odd, tokens(33), shift=odd)
    assert not is_flat(tokens(6 * 33 + 1)[1:].view(1, 6, 33))
    assert not is_flat(odd, tokens(33), shift=tokens(6 * 33 + 1)[1:].view(1, 6, 33))
    assert not is_flat(odd, tokens(1, 6, 66)[..., 33:])  # each token has its own row, and rows start anywhere
    assert not is_flat(tokens(2, 6, 33), tokens(2, 33))  # the second batch is not aligned to vectors
    assert is_flat(tokens(2, 8, 33), tokens(2, 33))
    d = tokens(64)
    half = [str(plain.scale_shift_variant(tokens(1, 6, 64), d, d, own, tokens(1, 6, 64))) for own in (1.5, 1.1)]
    assert half[0].startswith("flat: ") and half[1].startswith("tiled: ")  # bfloat16 cannot hold 1.1


@needs_nvcc
def test_more_axes_are_one_launch_if_they_merge(plain: Any) -> None:
    x, frame, batch, place = tokens(2, 3, 5, 64), tokens(2, 3, 1, 64), tokens(2, 1, 1, 64), tokens(5, 64)
    assert chosen(plain, x) == chosen(plain, x.transpose(1, 2)) == chosen(plain, x[0])
    assert chosen(plain, x, frame) == "flat: scale row, shift row, rounded, 6 batches"
    assert chosen(plain, x, batch) == "flat: scale row, shift row, rounded, 2 batches"
    assert len(chosen(plain, x, batch, shift=frame).splitlines()) == 1  # batches are covered by frames
    assert len(chosen(plain, x, batch, shift=place).splitlines()) == 1
    walked = chosen(plain, tokens(2, 4, 6, 64)[:, :3, :5], batch, shift=frame, y=x)
    assert len(walked.splitlines()) == 2
    # The stride of an axis of size 1 does not matter.
    apart = x.as_strided((2, 3, 1, 5, 64), (15 * 64, 5 * 64, 7, 64, 1))
    assert chosen(plain, apart, batch[:, None], y=x[:, :, None]) == chosen(plain, x, batch)


@needs_nvcc
def test_a_sum_is_folded_into_rows_of_the_smaller_summand(plain: Any) -> None:
    def of(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> str:
        return str(plain.broadcast_add_variant(a, b, out))

    row, whole = tokens(1, 1, 3, 64), tokens(1, 126, 3, 64)
    assert of(row, whole, whole) == of(whole, row, whole) == "flat: scale none, shift row"
    assert of(whole, whole, whole) == "flat: scale none, shift dense"
    crossed = of(tokens(5, 1, 64), tokens(1, 7, 64), tokens(5, 7, 64))
    assert crossed == "flat: scale none, shift row, 5 batches"
    alternating = of(tokens(2, 3, 1, 5, 16), tokens(2, 1, 4, 5, 16), tokens(2, 3, 4, 5, 16))
    assert alternating.splitlines() == ["flat: scale none, shift row, 3 batches"] * 2
    assert of(row, whole.float(), whole) == "none"


@needs_nvcc
def test_it_answers_no_and_launches_nothing_for_a_tensor_that_is_not_its_own(plain: Any) -> None:
    x, d = tokens(1, 4, 64), tokens(64)
    y = torch.full_like(x, 7.0)
    assert plain.scale_shift(x, d, d, 1.0, y) is False
    assert plain.residual_gate(x, x, d, y) is False
    assert plain.broadcast_add(x, d, y) is False
    assert (y == 7).all()
    assert chosen(plain, x.double()) == chosen(plain, x.half()) == "none"
    # The library of the other pair of dtypes accepts it.
    assert plain.residual_gate_variant(x.float(), x, d, x.float()) == "none"
    assert plain.residual_gate_variant(x[:, :1], x, d, x) == "none"


@needs_nvcc
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"scale": tokens(63)}, "scale: has 63 channels, x has 64"),
        ({"shift": tokens(3, 64)}, "shift: has 3 where x has 2 batch entries"),
        ({"scale": tokens(2, 4, 1, 64)}, "scale: 6 tokens do not divide into 4 frames"),
        ({"y": tokens(2, 6, 63)}, "out: has another shape than x"),
        ({"y": torch.zeros(2, 6, 64)}, "out: has another dtype than the result"),
        ({"scale": torch.zeros(64, dtype=torch.int64)}, "scale: is no floating-point tensor"),
    ],
)
def test_a_wrong_argument_is_named(plain: Any, changed: dict[str, torch.Tensor], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        chosen(plain, tokens(2, 6, 64), **changed)


@needs_nvcc
def test_the_other_ops_name_their_own_arguments(plain: Any) -> None:
    x = tokens(2, 6, 64)
    with pytest.raises(ValueError, match=r"^gate: has 63 channels, residual has 64"):
        plain.residual_gate_variant(x, x, tokens(63), x)
    with pytest.raises(ValueError, match=r"^b: has 5 where a has 6, and they do not broadcast"):
        plain.broadcast_add_variant(x, tokens(5, 64), x)


@needs_nvcc
@pytest.mark.parametrize("name", ["scale_shift", "residual_gate", "broadcast_add", "ernie_residual_gate"])
def test_each_function_lists_the_parameters_of_its_definition(plain: Any, name: str) -> None:
    op = shipped_ops()[name]
    named = [parameter.name for parameter in op.tensor_parameters] + [*op.scalar_defaults, *op.outputs]
    assert str(getattr(plain, f"{name}_parameters")()).split() == named


@needs_nvcc
@pytest.mark.parametrize("check", PRODUCTS, ids=lambda check: check.library.name)
def test_no_product_is_fused_into_a_sum(check: Check) -> None:
    kernel_checks.hold(check)


def test_every_pair_of_dtypes_has_its_library() -> None:
    names = {library.name for library in CUDA["scale_shift"].libraries(SM90)}
    assert names == {f"modulation_{kind}" for kind in ("fp32", "fp16", "bf16", "fp16_fp32", "bf16_fp32")}
    assert CUDA["scale_shift"].libraries(Target("cpu")) == []
