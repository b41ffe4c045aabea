"""The CUDA kernels as far as a machine without a GPU goes: they compile, fuse nothing, and C++ checks and chooses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from modulation_cases import BF16, FP16, FP32

from kernwright.ops.modulation import native
from kernwright.ops.native_sources import CUDA_HEADERS
from kernwright.runtime.library import Target, nvcc

needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
SM90 = Target("sm_90")
H200 = 132  # multiprocessors


@pytest.fixture(scope="module")
def plain() -> Any:
    """Loaded without a driver; CPU tensors stand in for those of a GPU, since choosing looks at no content."""
    return native.cuda_library(BF16, BF16).load(SM90)


def tokens(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


def chosen(library: Any, x: torch.Tensor, scale: torch.Tensor | None = None, **more: Any) -> str:
    scale = x.new_zeros(x.shape[-1]) if scale is None else scale
    return str(library.scale_shift_variant(x, scale, more.get("shift", scale), 1.0, more.get("y", x), H200))


@needs_nvcc
@pytest.mark.parametrize(
    ("sizes", "variant"),
    [
        ((1, 19, 3072), "vector 8, 1 tokens a thread, streams nothing, 128 x 2 threads"),
        ((1, 195, 3072), "vector 8, 1 tokens a thread, streams nothing, 128 x 2 threads"),
        ((1, 4096, 3072), "vector 8, 4 tokens a thread, streams nothing, 128 x 2 threads"),
        ((1, 4096, 4608), "vector 8, 4 tokens a thread, streams nothing, 64 x 4 threads"),
        ((1, 4096, 128), "vector 8, 1 tokens a thread, streams nothing, 16 x 16 threads"),
        ((1, 4, 8), "vector 8, 1 tokens a thread, streams nothing, 1 x 256 threads"),
        ((1, 4, 3074), "vector 2, 8 tokens a thread, streams both, 32 x 8 threads"),
        ((1, 4, 3073), "vector 1, 8 tokens a thread, streams both, 32 x 8 threads"),
        ((1, 4, 1), "vector 1, 8 tokens a thread, streams both, 1 x 256 threads"),
    ],
)
def test_each_size_has_its_variant(plain: Any, sizes: tuple[int, ...], variant: str) -> None:
    assert chosen(plain, tokens(*sizes)) == variant


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
    assert width_of(x, shift=tokens(1)) == "vector 8"  # one number is no vector
    assert width_of(tokens(300).as_strided((1, 4, 64), (3, 64, 1))) == "vector 8"  # of one batch no step is taken


@needs_nvcc
def test_what_tokens_share_is_read_once_and_alike_batches_are_one_run(plain: Any) -> None:
    def tail(*given: Any, **more: Any) -> str:
        return chosen(plain, *given, **more).removeprefix("vector 8, 1 tokens a thread, streams ")

    x = tokens(2, 6, 64)
    assert tail(x) == "nothing, 8 x 32 threads"  # per channel: one run of 12 tokens
    assert tail(x, tokens(2, 64)) == "nothing, 8 x 32 threads, 2 batches"
    assert tail(x, tokens(64), shift=tokens(2, 6, 64)) == "shift, 8 x 32 threads"
    assert tail(x, tokens(2, 6, 64), shift=tokens(64)) == "both, 8 x 32 threads"
    assert tail(x, tokens(1, 6, 64)) == "both, 8 x 32 threads, 2 batches"  # the second batch begins again
    assert tail(x, tokens(2, 3, 1, 64)) == "nothing, 8 x 32 threads, 6 batches"  # frames are batches
    assert tail(x, tokens(2, 3, 1, 64), shift=tokens(2, 6, 64)) == "shift, 8 x 32 threads, 6 batches"
    assert tail(x, tokens(2, 3, 1, 64), shift=tokens(2, 2, 1, 64)) == "both, 8 x 32 threads"  # not two kinds
    assert tail(tokens(6, 1, 64), tokens(6, 64)) == "both, 8 x 32 threads"
    assert tail(tokens(2, 12, 64)[:, :6]).endswith("2 batches")


@needs_nvcc
def test_a_sum_is_folded_into_rows_that_the_smaller_summand_gives_once(plain: Any) -> None:
    def of(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> str:
        return str(plain.broadcast_add_variant(a, b, out, H200))

    row, whole = tokens(1, 1, 3, 64), tokens(1, 126, 3, 64)
    rows = "vector 8, 1 tokens a thread, streams nothing, 32 x 8 threads"  # 24 vectors: three rows of 64 are one of 192
    assert of(row, whole, whole) == of(whole, row, whole) == rows
    crossed = of(tokens(5, 1, 64), tokens(1, 7, 64), tokens(5, 7, 64))
    assert crossed.endswith("streams nothing, 8 x 32 threads, 5 batches")
    assert of(tokens(2, 3, 1, 5, 16), tokens(2, 1, 4, 5, 16), tokens(2, 3, 4, 5, 16)) == "none"
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
    assert plain.residual_gate_variant(x.float(), x, d, x.float(), H200) == "none"  # the library beside it takes that
    assert plain.residual_gate_variant(x[:, :1], x, d, x, H200) == "none"


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
    with pytest.raises(ValueError, match=r"^gate: has 63 channels, update has 64"):
        plain.residual_gate_variant(x, x, tokens(63), x, H200)
    with pytest.raises(ValueError, match=r"^b: has 5 where a has 6, and they do not broadcast"):
        plain.broadcast_add_variant(x, tokens(5, 64), x, H200)


def compiled(pair: tuple[torch.dtype, torch.dtype], kind: str, target: Target, folder: Path) -> Path:
    """The kernels alone, which are all that an architecture changes."""
    library = native.cuda_library(*pair)
    (kernel,) = (source for source in library.sources if source.suffix == ".cu")
    to = folder / f"{target.name}.{kind}"
    macros = [f"-D{name}={value}" for name, value in library.macros]
    folders = sorted({f"-I{header.parent}" for header in CUDA_HEADERS})
    command = [
        str(nvcc()),
        f"-{kind}",
        f"-arch={target.name}",
        "-std=c++17",
        *macros,
        *folders,
        "-o",
        str(to),
        str(kernel),
    ]
    subprocess.run(command, check=True)
    return to


@needs_nvcc
def test_no_product_is_fused_into_a_sum(tmp_path: Path) -> None:
    """In float32, where nothing is rounded between them, a fused one would have other bits."""
    text = compiled((FP32, FP32), "ptx", SM90, tmp_path).read_text()
    assert "mul.rn.f32" in text and "add.rn.f32" in text
    assert not re.search(r"\bfma\.|\b(mul|add)\.(ftz\.)?f32|\.ftz", text)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "pair"),
    [("sm_75", (BF16, FP32)), ("sm_80", (FP16, FP16)), ("sm_100", (FP32, FP32))],  # sm_75 has no bf16 of its own
)
def test_the_kernels_compile_for_every_architecture(
    target: str, pair: tuple[torch.dtype, torch.dtype], tmp_path: Path
) -> None:
    assert compiled(pair, "cubin", Target(target), tmp_path).stat().st_size > 0


def test_every_pair_of_dtypes_has_its_library() -> None:
    names = {library.name for library in native.libraries(SM90)}
    assert names == {f"modulation_{kind}" for kind in ("fp32", "fp16", "bf16", "fp16_fp32", "bf16_fp32")}
    assert native.libraries(Target("cpu")) == []
