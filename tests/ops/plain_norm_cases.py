"""Calls for every implementation of layer_norm and rms_norm, checked by the judge's own rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from token_cases import EQUAL_VALUES, EQUAL_WIDTHS, by_several_draws, made_equal
from torch import Tensor

from kernwright.core.registry import shipped_ops
from kernwright.judge.numerics.contracts import Expected, compare
from kernwright.judge.numerics.correctness import NEAR_MISS_FACTOR
from kernwright.tasks.task import Tolerance

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
TOLERANCES = {BF16: 0.05, FP16: 0.05, FP32: 1e-5}  # as in tasks/norm_infer


@dataclass(frozen=True)
class Case:
    """One call: x's shape, dtype and layout, and its affine parameters."""

    name: str
    norm: str = "layer"
    shape: tuple[int, ...] = (2, 6, 64)
    dtype: torch.dtype = BF16
    weight: torch.dtype | None = None
    bias: torch.dtype | None = None
    layout: str = "dense"
    offset: float = 0.5
    equal: float | None = None  # value of every element of x

    @property
    def op(self) -> str:
        return f"{self.norm}_norm"

    @property
    def scalars(self) -> dict[str, Any]:
        return {"eps": 1e-6}

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        """Draw tensors on the CPU, so that every device gets the same numbers."""
        generator = torch.Generator().manual_seed(sum(map(ord, self.name)))

        def draw(*sizes: int) -> Tensor:
            return torch.randn(sizes, generator=generator)

        def rows(*sizes: int) -> Tensor:
            return (draw(*sizes) * 2 + self.offset).to(self.dtype).to(device)

        *leading, width = self.shape
        if self.layout == "turned":  # dense, with reversed leading axes
            x = rows(*reversed(leading), width).permute(*reversed(range(len(leading))), len(leading))
        elif self.layout == "packed":  # the middle one of three projections in one tensor
            heads = leading[-1]
            x = rows(*leading[:-1], 3 * heads, width)[..., heads : 2 * heads, :]
        elif self.layout == "gaps":
            x = rows(*leading, width + 5)[..., 2 : 2 + width]
        elif self.layout == "cut":  # no two axes can be merged
            x = rows(*(size + 1 for size in leading), width)[tuple(slice(1, None) for _ in leading)]
        elif self.layout == "expanded":
            x = rows(1, *leading[1:], width).expand(self.shape)
        else:
            x = rows(*self.shape)
        assert x.shape == self.shape
        given: dict[str, Tensor | None] = {"x": x}
        if self.equal is not None:
            made_equal(given, self.equal)
        for name, dtype in (("weight", self.weight), ("bias", self.bias)):
            given[name] = None if dtype is None else (draw(width) / 4 + (name == "weight")).to(dtype).to(device)
        return given

    def arguments(self, device: str = "cpu") -> list[Tensor | None]:
        tensors = self.tensors(device)
        return [tensors[parameter.name] for parameter in shipped_ops()[self.op].tensor_parameters]


def cases() -> list[Case]:
    found: list[Case] = []
    for dtype in (BF16, FP16, FP32):
        for norm in ("layer", "rms"):
            bias = dtype if norm == "layer" else None
            found.append(Case(f"{norm} {dtype}", norm, dtype=dtype))
            found.append(Case(f"{norm} {dtype} affine", norm, dtype=dtype, weight=dtype, bias=bias))
    found.append(Case("weight alone", weight=BF16))
    found.append(Case("bias alone", bias=BF16))
    found.append(Case("layer fp32 affine of bf16", weight=FP32, bias=FP32))
    found.append(Case("rms fp32 weight of bf16", "rms", weight=FP32))
    found.append(Case("rms fp16 weight of fp32", "rms", dtype=FP32, weight=FP16))
    for number, width in enumerate((1, 2, 7, 8, 31, 40, 100, 128, 129, 257, 1023, 3072, 3074, 3073)):
        norm = ("layer", "rms")[number % 2]
        found.append(Case(f"width {width}", norm, (2, 5, width), weight=BF16))
    for width in (8200, 16390, 33000, 65535, 65536):
        found.append(Case(f"width {width}", shape=(2, width), weight=BF16, bias=BF16))
    found.append(Case("rms width 33000", "rms", (2, 33000), FP32, FP32))
    heads = (2, 5, 3, 128)
    for layout in ("dense", "turned", "packed", "gaps", "cut"):
        found.append(Case(f"{layout} heads", "rms", heads, weight=BF16, layout=layout))
    found.append(Case("gaps odd", shape=(3, 4, 97), dtype=FP32, layout="gaps", weight=FP32))
    found.append(Case("cut deep", shape=(2, 3, 2, 2, 24), layout="cut"))
    found.append(Case("expanded", shape=(3, 4, 64), layout="expanded"))
    found.append(Case("one row", shape=(96,), weight=BF16))
    found.append(Case("single rows", "rms", (4, 1, 64), weight=BF16))
    found.append(Case("far from zero", shape=(4, 513), dtype=FP32, offset=1000.0))
    found.append(Case("many small rows", "rms", (1500, 128), weight=BF16))
    found.append(Case("many odd rows", shape=(3, 211, 39), bias=BF16, weight=BF16))
    found.append(Case("no rows", shape=(0, 64), weight=BF16))
    found.append(Case("no rows within", "rms", shape=(3, 0, 64)))
    return found


def narrow_cases() -> list[Case]:
    """Return RMS norms of rows of 128, 256 and 512 bytes: few, more and many of each, in the numbers of an emulation.
    One run with a weight, or two batches without one."""
    found = []
    for dtype in (BF16, FP32):
        for row in (128, 256, 512):
            for rows in (8192 // row - 3, 8192 // row + 3, 20480 // row + 3):
                name, width = f"narrow {dtype} {rows} x {row} bytes", row // dtype.itemsize
                found.append(Case(name, "rms", (rows, width), dtype, weight=dtype))
                found.append(Case(f"{name} cut", "rms", (2, (rows + 1) // 2, width), dtype, layout="cut"))
    return found


def equal_cases() -> list[Case]:
    """Return rows of equal elements. Sums of more than 8192 such float16 numbers are rounded, and those of bfloat16 are
    not."""
    found = []
    for dtype, equal in itertools.product((BF16, FP16), EQUAL_VALUES):
        for width in (*EQUAL_WIDTHS, 1000, 3072, 3073, 7168, *((14001, 40000, 65535) if dtype == BF16 else ())):
            name = f"{dtype} {width} x {equal}"
            found.append(Case(name, shape=(2, width), dtype=dtype, equal=equal))
            found.append(Case(f"{name} affine", shape=(2, width), dtype=dtype, weight=FP32, bias=dtype, equal=equal))
    return found


CASES = {case.name: case for case in cases()}
EQUAL_CASES = {case.name: case for case in equal_cases()}
NARROW_CASES = {case.name: case for case in narrow_cases()}  # cases that only the CUDA kernels distinguish


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    """Check a case as the judge checks a candidate for the contract `close`, and compare the layout with x's.

    The eager chain runs on the CPU: unlike a GPU's LayerNorm it supports a float32 affine for half-width rows.
    """
    op, scalars = shipped_ops()[case.op], case.scalars
    own = case.tensors()
    (oracle,), (eager,) = op.oracle(own, scalars), op.call(own, scalars)
    given = case.arguments(device)
    kept = [None if tensor is None else tensor.clone() for tensor in given]
    y = run(*given, **scalars)
    x = given[0]
    assert x is not None
    assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
    assert y.stride() == torch.empty_like(x).stride()
    if y.numel():
        limit = TOLERANCES[case.dtype] * (1000 if case.offset > 100 else 1)  # tolerance of a norm of such numbers
        expected = Expected.of(oracle, eager)
        tolerance = Tolerance(atol=limit, rtol=limit)
        finding = compare(y.cpu(), expected, "close", tolerance)
        if finding.problem and finding.figures.max_error <= NEAR_MISS_FACTOR * expected.eager_max:
            drawn = by_several_draws(case, op.outputs[0], expected, "cpu")
            finding = compare(y.cpu(), drawn, "close", tolerance)
        assert finding.problem is None, f"{case.name}: {finding.problem}"
    for tensor, before in zip(given, kept, strict=True):
        assert tensor is None or torch.equal(tensor, before), "an input was changed"
