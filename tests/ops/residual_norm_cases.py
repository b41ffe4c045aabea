"""Calls for every implementation of the norms with a residual, checked by the judge's own rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from token_cases import BF16, EQUAL_VALUES, EQUAL_WIDTHS, FP16, FP32, TOLERANCES, made_equal
from torch import Tensor

from kernwright.core.registry import shipped_ops
from kernwright.judge.numerics.contracts import ErrorFigures, Expected, OutputFinding, compare
from kernwright.judge.numerics.correctness import FEW_ELEMENTS, FEW_ROWS, MAX_REDRAWS, NEAR_MISS_FACTOR
from kernwright.tasks.task import Tolerance

Dtype = torch.dtype


@dataclass(frozen=True)
class Case:
    """One call: x's sizes, dtype and layout, and the dtype of all other tensors."""

    name: str
    batch: int = 2
    tokens: int = 6
    width: int = 64
    dtype: Dtype = BF16
    residual: Dtype | None = BF16
    weight: Dtype | None = BF16
    bias: Dtype | None = None
    second: Dtype | None = None
    row_scale: Dtype | None = None
    norm_type: str = "rms"
    layout: str = "dense"
    in_place: bool = False
    offset: float = 0.5
    equal: float | None = None  # value of every element of x

    @property
    def op(self) -> str:
        return "fused_add_rms_norm_" if self.in_place else "add_norm"

    @property
    def scalars(self) -> dict[str, Any]:
        return {"eps": 1e-6} if self.in_place else {"norm_type": self.norm_type, "eps": 1e-6}

    @property
    def is_sum_of_two(self) -> bool:
        """Return whether CUDA kernels of norm_modulation support the case."""
        return self.residual == self.dtype and self.second is None and self.row_scale is None

    def tensors(self, device: str = "cpu", redraw: int = 0) -> dict[str, Tensor | None]:
        """Draw tensors on the CPU, so that every device gets the same numbers."""
        generator = torch.Generator().manual_seed(sum(map(ord, self.name)) + 100_000 * redraw)

        def draw(*sizes: int) -> Tensor:
            return torch.randn(sizes, generator=generator)

        def rows(dtype: Dtype | None, layout: str = self.layout) -> Tensor | None:
            if dtype is None:
                return None
            b, s, d = self.batch, self.tokens, self.width

            def drawn(*sizes: int) -> Tensor:
                return (draw(*sizes) * 2 + self.offset).to(dtype).to(device)

            if layout == "gaps":
                return drawn(b, s, d + 5)[..., 2 : 2 + d]
            if layout == "turned":
                return drawn(s, b, d).transpose(0, 1)
            if layout == "cut":  # no two axes can be merged
                return drawn(b + 1, s + 1, 3, d)[1:, 1:, 1:]
            return drawn(s, d) if layout == "flat" else drawn(b, s, d)

        def row(dtype: Dtype | None, around: float) -> Tensor | None:
            return None if dtype is None else (draw(self.width) / 4 + around).to(dtype).to(device)

        x = rows(self.dtype)
        assert x is not None
        given = {"x": x, "residual": rows(self.residual), "weight": row(self.weight, 1)}
        if self.equal is not None:
            made_equal(given, self.equal)
        if not self.in_place:
            given |= {
                "bias": row(self.bias, 0),
                "second": rows(self.second, {"gaps": "dense", "turned": "gaps"}.get(self.layout, self.layout)),
            }
            scale = None if self.row_scale is None else draw(*x.shape[:-1]).to(self.row_scale).to(device)
            given["row_scale"] = scale
        return given


def cases() -> list[Case]:
    found: list[Case] = []
    for dtype in (BF16, FP16, FP32):
        own: dict[str, Any] = {"dtype": dtype, "residual": dtype, "weight": dtype}
        found.append(Case(f"in place {dtype}", in_place=True, **own))
        found.append(Case(f"rms {dtype}", **own))
        found.append(Case(f"layer {dtype}", norm_type="layer", bias=dtype, **own))
        found.append(Case(f"all of {dtype}", bias=dtype, second=dtype, row_scale=dtype, **own))
    found.append(Case("in place without weight", weight=None, in_place=True))
    found.append(Case("in place of fp32", residual=FP32, in_place=True))
    found.append(Case("fp32 residual", residual=FP32))
    found.append(Case("fp32 residual and all else", residual=FP32, bias=BF16, second=FP16, row_scale=FP32))
    found.append(Case("bf16 residual of fp32", dtype=FP32))
    found.append(Case("fp32 affine", weight=FP32, bias=FP32, norm_type="layer"))
    found.append(Case("weight of another dtype", weight=FP16, bias=FP32))
    found.append(Case("bias alone", weight=None, bias=BF16, norm_type="layer"))
    found.append(Case("second alone", residual=None, second=BF16))
    found.append(Case("row scale alone", residual=None, row_scale=FP32, norm_type="layer"))
    found.append(Case("x alone", residual=None))
    for number, width in enumerate((1, 7, 100, 128, 257, 1023, 4096, 3073)):
        found.append(Case(f"width {width}", width=width, tokens=5, norm_type=("rms", "layer")[number % 2]))
        found.append(Case(f"in place width {width}", width=width, tokens=5, in_place=True))
    for width in (16390, 65536):
        more: dict[str, Any] = {"width": width, "tokens": 2, "batch": 1}
        found.append(Case(f"width {width}", bias=BF16, norm_type="layer", **more))
        found.append(Case(f"in place width {width}", in_place=True, **more))
        found.append(Case(f"forms width {width}", residual=FP32, second=BF16, row_scale=BF16, **more))
    found.append(Case("single tokens", batch=4, tokens=1))
    found.append(Case("in place single tokens", batch=4, tokens=1, in_place=True))
    for layout in ("flat", "gaps", "turned", "cut"):
        in_place = {"in_place": True, "name": f"in place {'apart' if layout == 'gaps' else layout}"}
        found.append(Case(layout, layout=layout, second=BF16, row_scale=FP32))
        found.append(Case(**{"layout": layout, **in_place}))
    found.append(Case("far from zero", dtype=FP32, residual=FP32, width=513, norm_type="layer", offset=500.0))
    found.append(Case("no rows", tokens=0))
    found.append(Case("in place no rows", batch=0, in_place=True))
    return found


def equal_cases() -> list[Case]:
    """Return sums of equal elements. Totals of more than 8192 such float16 numbers are rounded, and those of bfloat16
    are not."""
    found = []
    for dtype, equal in itertools.product((BF16, FP16), EQUAL_VALUES):
        own: dict[str, Any] = {"dtype": dtype, "residual": dtype, "bias": dtype, "norm_type": "layer", "equal": equal}
        for width in (*EQUAL_WIDTHS, 1000, 2624, 3073, 7168, *((14001, 40000, 65535) if dtype == BF16 else ())):
            for weight in (dtype, FP32):
                name = f"{dtype} {width} x {equal} by {weight}"
                found.append(Case(name, batch=1, tokens=2, width=width, weight=weight, **own))
    return found


def general_cases() -> list[Case]:
    """Return cases that reach the CUDA kernels for general sums which no other case reaches."""
    found: list[Case] = []
    for number, (dtype, residual) in enumerate(itertools.product((BF16, FP16, FP32), (None, BF16, FP16, FP32))):
        what, total = f"{residual} of {dtype}", residual or dtype
        norms = ("rms", "layer") if number % 2 else ("layer", "rms")
        own: dict[str, Any] = {"dtype": dtype, "residual": residual, "batch": 1, "tokens": 3, "weight": dtype}
        joined = {"second": dtype} if residual == dtype else {}  # without it, it would be a sum of two
        found.append(Case(f"{what} bare", norm_type=norms[0], **own | joined | {"weight": None}))
        found.append(Case(f"{what} row scale", norm_type=norms[1], row_scale=dtype, **own))
        found.append(Case(f"{what} wide row scale", row_scale=FP32, second=dtype, width=120, **own))
        for width in (7, 100):
            found.append(Case(f"{what} {width}", width=width, norm_type=norms[0], bias=dtype, second=dtype, **own))
        found.append(Case(f"{what} any 1032", width=1032, bias=FP32, second=FP16, **own | {"weight": total}))
        found.append(Case(f"{what} odd 777", width=777, norm_type=norms[1], row_scale=dtype, second=BF16, **own))
        found.append(Case(f"{what} apart", layout="gaps", width=264, norm_type=norms[0], **own | joined | {"batch": 2}))
        for width in (2560, 4096, 4544, 9000, 16392, 8195):
            own["tokens"] = 2
            more = {"second": dtype, "bias": dtype} if width != 4096 else joined
            normed_by = "rms" if residual == FP32 != dtype else norms[width % 3 % 2]
            found.append(Case(f"{what} {width}", width=width, norm_type=normed_by, **own | more))
        if residual == FP32 != dtype:  # layer norms of such sums have kernels of their own
            for width in (64, 100, 777, 4096, 9000, 16392, 8195):
                found.append(Case(f"layer {what} {width}", width=width, norm_type="layer", bias=dtype, **own))
            found.append(Case(f"layer {what} any 1032", width=1032, norm_type="layer", **own | {"weight": FP32}))
        if residual not in (None, dtype):
            for width in (64, 777, 4096, 16392):
                found.append(Case(f"in place {what} {width}", width=width, in_place=True, **own))
    found.append(Case("row scale and second in three dtypes", dtype=FP16, residual=BF16, second=FP32, row_scale=BF16))
    return found


CASES = {case.name: case for case in cases()}
# Cases whose elements, and their mean, only float32 can hold.
WIDE_EQUAL_CASES = {
    f"{dtype} {width} x {equal} by {weight}": Case(
        f"{dtype} {width} x {equal} by {weight}", batch=1, tokens=2, width=width, dtype=dtype, residual=FP32,
        weight=weight, bias=dtype, norm_type="layer", equal=equal,
    )
    for dtype, equal in itertools.product((BF16, FP16), EQUAL_VALUES)
    for width in (7, 120, 257, 1000, 2624, 3073, 4544, 7168, 16400)
    for weight in (dtype, FP32)
}  # fmt: skip
GENERAL_CASES = {name: case for name, case in CASES.items() if not case.is_sum_of_two} | {
    case.name: case for case in general_cases()
}
EQUAL_CASES = {case.name: case for case in equal_cases()}


def is_perhaps_luck(finding: OutputFinding, value: Tensor) -> bool:
    """Return whether the eager chain's error of one draw may be small by chance, by the judge's rule.

    That is so for few elements and for few rows. The chain's error also differs between kinds of processors.
    """
    few = value.numel() <= FEW_ELEMENTS or value.numel() <= FEW_ROWS * value.shape[-1]
    return few and finding.figures.max_error <= NEAR_MISS_FACTOR * finding.figures.eager_max


def by_several_draws(case: Case, name: str, expected: Expected) -> Expected:
    op = shipped_ops()[case.op]
    for number in range(1, MAX_REDRAWS + 1):
        own = case.tensors(redraw=number)
        oracles, eagers = op.results(own, case.scalars, precision=torch.float64), op.results(own, case.scalars)
        drawn = Expected.of(oracles[name], eagers[name])
        expected = expected.widened_to(ErrorFigures(0.0, 0.0, drawn.eager_max, drawn.eager_rms))
    return expected


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    """Check a case as the judge checks a candidate for the contract `close`. Also compare the layout with x's, and
    check that all other tensors are unchanged.

    The eager chain runs on the CPU, and every device is compared with it.
    """
    op, own = shipped_ops()[case.op], case.tensors()
    oracles, eagers = op.results(own, case.scalars, precision=torch.float64), op.results(own, case.scalars)
    given = case.tensors(device)
    wholes = {
        name: tensor if tensor._base is None else tensor._base for name, tensor in given.items() if tensor is not None
    }
    kept = {name: whole.clone() for name, whole in wholes.items()}
    returned = run(*(given[parameter.name] for parameter in op.tensor_parameters), **case.scalars)
    found = (
        {name: given[name] for name in op.inplace} if case.in_place else dict(zip(op.outputs, returned, strict=True))
    )
    x = given["x"]
    assert x is not None
    for name, value in found.items():
        assert value is not None
        eager = eagers[name]
        assert (value.shape, value.dtype, value.device) == (eager.shape, eager.dtype, x.device), name
        if not case.in_place:
            assert value.stride() == torch.empty_like(x).stride(), name
        if value.numel():
            limit = TOLERANCES[value.dtype] * (1000 if case.offset > 100 else 1)  # tolerance of a norm of such numbers
            expected, tolerance = Expected.of(oracles[name], eager), Tolerance(atol=limit, rtol=limit)
            finding = compare(value.cpu(), expected, "close", tolerance)
            if finding.problem and is_perhaps_luck(finding, value):
                finding = compare(value.cpu(), by_several_draws(case, name, expected), "close", tolerance)
            assert finding.problem is None, f"{case.name}: {name}: {finding.problem}"
    for name, whole in wholes.items():
        tensor, before = given[name], kept[name]
        assert tensor is not None
        if name in op.inplace:
            before.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tensor)
        assert torch.equal(whole, before), f"{name} was changed where it should not be"
