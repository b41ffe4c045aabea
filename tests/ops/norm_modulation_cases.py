"""Calls for every implementation of norm_scale_shift and its residual twin, checked by the judge's own rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from token_cases import BF16, EQUAL_VALUES, EQUAL_WIDTHS, FP16, FP32, Drawing, How, hold, made_equal
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """One call: x's sizes and dtype, each modulation's layout and dtype."""

    name: str
    batch: int = 2
    tokens: int = 6
    width: int = 64
    frames: int = 3
    dtype: torch.dtype = BF16
    norm_type: str = "layer"
    scale: How = ("batch", BF16)
    shift: How = ("batch", BF16)
    gate: How | None = None
    weight: torch.dtype | None = None
    bias: torch.dtype | None = None
    residual: bool = False
    gaps: bool = False  # gaps between tokens, and batches in another order
    flat: bool = False  # x is [S, D]
    offset: float = 0.5
    equal: float | None = None  # value of every element of x
    first: float | None = None  # value of each token's first element, if it is an unusual one
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def op(self) -> str:
        return "residual_norm_scale_shift" if self.residual else "norm_scale_shift"

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        own = Drawing(
            self.name, self.batch, self.tokens, self.width, self.frames, self.dtype, device=device, offset=self.offset,
            gaps=self.gaps, flat=self.flat,
        )  # fmt: skip
        x = own.tokens()
        if self.first is not None:
            x[..., 0] = self.first
        given: dict[str, Tensor | None] = {"x": x}
        if self.residual:
            given["residual"] = own.tokens()
            given["gate"] = None if self.gate is None else own.modulation(self.gate)
        given |= {"scale": own.modulation(self.scale), "shift": own.modulation(self.shift)}
        if self.equal is not None:
            made_equal(given, self.equal)
        return given | {"weight": own.affine(self.weight, 1), "bias": own.affine(self.bias, 0)}

    @property
    def scalars(self) -> dict[str, Any]:
        return {"norm_type": self.norm_type, "eps": 1e-6, **self.more}


def both(name: str, **more: Any) -> Iterator[Case]:
    yield Case(name, **more)
    yield Case(f"residual {name}", residual=True, gate=more.get("scale", ("batch", BF16)), **more)


def cases() -> list[Case]:
    found: list[Case] = []
    layouts = ["number", "one", "channel", "batch", "row", "single", "token", "tokens of one", "frame", "frame of one"]
    for layout in [*layouts, "column", "expanded", "chunk"]:
        found += both(f"{layout} modulation", scale=(layout, BF16), shift=(layout, BF16))
    found += both("frame and channel", scale=("frame", FP32), shift=("channel", BF16))
    for dtype in (BF16, FP16, FP32):
        for norm_type in ("layer", "rms"):
            found += both(f"{norm_type} {dtype}", dtype=dtype, norm_type=norm_type, scale=("batch", dtype))
            found += both(f"{norm_type} {dtype} weight", dtype=dtype, norm_type=norm_type, weight=dtype)
        found += both(f"{dtype} weight and bias", dtype=dtype, weight=FP32, bias=FP32, scale=("one", BF16))
        found += both(f"{dtype} mixed", dtype=dtype, scale=("row", FP32), shift=("token", FP16), weight=BF16, bias=FP16)
    for width in (1, 2, 3, 7, 8, 31, 33, 100, 128, 129, 257, 1000, 1023, 3072, 3073):
        found += both(f"width {width}", width=width, tokens=5, frames=1, scale=("row", FP32))
    for width in (16384, 16390, 33000, 65535, 65536):
        found += both(f"width {width}", width=width, tokens=2, batch=1, frames=1)
    found += both("gaps", gaps=True, width=96)
    # One row of modulation for all tokens, so that only the tokens' own strides keep batches from being one run.
    found += both("gaps of one row", gaps=True, width=96, scale=("channel", BF16), shift=("channel", BF16))
    found += both("gaps odd", gaps=True, width=97, dtype=FP32)
    found += both("flat", flat=True, batch=1, scale=("channel", BF16), shift=("flat tokens", BF16))
    found += both("far from zero", dtype=FP32, offset=1000.0, width=513)
    # With float32 modulations too: nothing else rounds, so a wrong mean shows.
    fine = {"scale": ("row", FP32), "shift": ("row", FP32)}
    found += both("some way from zero", dtype=FP32, offset=100.0, width=3072, tokens=40, frames=5, **fine)
    for width, tokens in ((128, 40), (3073, 20), (40_000, 4)):
        name = f"some way from zero {width}"
        found += both(name, dtype=FP32, offset=100.0, width=width, tokens=tokens, frames=2, **fine)
    found += both("one token", batch=1, tokens=1, frames=1)
    found += both("single tokens", batch=4, tokens=1, frames=1, scale=("batch", BF16))
    found += both("many tokens", batch=3, tokens=700, width=40, frames=7, scale=("frame", BF16))
    found += both("no tokens", tokens=0, frames=1, scale=("row", BF16))
    found += both("no batch", batch=0, scale=("channel", BF16), shift=("channel", BF16))
    found.append(Case("residual without gate", residual=True))
    return found


def shape_cases() -> list[Case]:
    """Return cases for each CUDA kernel: widths with rows of x's dtype, with float32 rows, and with mixed ones."""
    found: list[Case] = []
    for width in (200, 768, 1536, 2048, 2056, 3072, 4096, 4200, 5120, 6144, 8192, 20000):
        found += both(f"own rows {width}", tokens=2, batch=1, width=width, scale=("row", BF16))
    for width in (768, 1536, 3072, 4096, 5120, 8192, 517, 5001):
        found.append(Case(f"own rows {width} without gate", residual=True, tokens=2, batch=1, width=width))
    found += both("own rows of tokens 1000", width=1000, scale=("token", BF16), shift=("token", BF16))
    for dtype in (BF16, FP16):
        rows = {"scale": ("row", dtype), "shift": ("row", dtype), "dtype": dtype}
        # Whole vectors, and tokens that are not aligned, including the rows of a second batch.
        for width in (3000, 3071):
            found += both(f"{dtype} rms own rows {width}", width=width, norm_type="rms", **rows)
            found += both(f"{dtype} own rows {width} far from zero", width=width, offset=300.0, **rows)
            found += both(f"{dtype} own rows {width} behind an outlier", width=width, first=2000.0, **rows)
    for width in (60, 120, 1280, 12000, 20000, 33000):
        tokens, own, mixed = 3 + 3000 // width, ("row", FP32), ("row", BF16)
        found += both(f"fp32 rows {width}", tokens=tokens, batch=1, width=width, dtype=FP32, scale=own, shift=own)
        found += both(
            f"mixed fp32 rows {width}", tokens=tokens, batch=1, width=width, dtype=FP32, scale=own, shift=mixed
        )
    for width in (28, 5120):  # a few small tokens one by one, and tokens that fill ten warps
        own = ("row", FP32)
        found += both(f"few fp32 rows {width}", tokens=5, batch=1, width=width, dtype=FP32, scale=own, shift=own)
    for width in (3072, 20000):
        for layout in ("row", "token"):
            rows = (layout, FP32)
            found += both(f"float {layout}s {width}", tokens=2, batch=1, width=width, scale=rows, shift=rows)
    for width, norm_type, dtype in ((2568, "rms", FP16), (4096, "layer", BF16), (5112, "layer", FP16)):
        found.append(Case(f"float rows that tokens share {width}", tokens=5, width=width, norm_type=norm_type,
                          dtype=dtype, scale=("row", FP32), shift=("row", FP32), first=100.0, frames=1))  # fmt: skip
    for width in (3072, 4096, 5120):
        found.append(Case(f"float rows that tokens share {width}, bf16", tokens=5, batch=1, width=width,
                          scale=("row", FP32), shift=("row", FP32), frames=1))  # fmt: skip
    found += both("mixed rows 40000", tokens=1, batch=1, frames=1, width=40000, scale=("row", FP32))
    found += both(
        "numbers beside an affine", width=1024, weight=FP32, bias=FP32, scale=("one", BF16), shift=("number", BF16)
    )
    found.append(Case("a float gate beside numbers and an affine", residual=True, width=1024, tokens=3, weight=FP32,
                      bias=FP32, gate=("token", FP32), scale=("one", BF16), shift=("one", BF16), frames=1))  # fmt: skip
    found += both(
        "numbers beside a weight of x's dtype", width=1024, weight=BF16, scale=("one", BF16), shift=("one", BF16)
    )
    for dtype in (BF16, FP32):
        # So many tokens that they are processed in pairs.
        for width in (24, 120, 248) if dtype == BF16 else (24, 60, 120):
            more = {"scale": ("channel", dtype), "shift": ("channel", dtype)}
            found.append(Case(f"{dtype} many small {width}", batch=1, tokens=151, width=width, dtype=dtype, **more))
        found += both(f"{dtype} odd 5001", tokens=2, batch=1, width=5001, dtype=dtype, scale=("token", dtype))
        found += both(f"{dtype} odd 517", width=517, dtype=dtype, scale=("row", dtype), shift=("row", dtype))
        found += both(f"{dtype} mixed odd 5001", tokens=2, batch=1, width=5001, dtype=dtype, scale=("row", FP16))
        found += both(f"{dtype} odd 14001", tokens=1, batch=1, frames=1, width=14001, dtype=dtype)
    return found


def equal_cases() -> list[Case]:
    """Return rows of equal half-width elements, for each kind of CUDA kernel."""
    found: list[Case] = []
    for dtype, equal in itertools.product((BF16, FP16), EQUAL_VALUES):
        more: dict[str, Any] = {"dtype": dtype, "equal": equal, "batch": 1, "tokens": 5, "frames": 1}
        own: dict[str, Any] = {"scale": ("row", dtype), "shift": ("row", dtype)}
        mixed = own | {"scale": ("row", FP16 if dtype == BF16 else BF16)}
        floats: dict[str, Any] = {"scale": ("row", FP32), "shift": ("row", FP32)}
        # Sums of more than 8192 such numbers are rounded in float16.
        wide = (12000, 14001, 40000, 65535) if dtype == BF16 else ()
        for width in (*EQUAL_WIDTHS, 200, 1000, 2624, 2665, *wide):
            found += both(f"{dtype} {width} x {equal}", width=width, **own, **more)
        for width in (520, 5001, 7168, *wide):
            found += both(f"{dtype} {width} x {equal}, mixed rows", width=width, **mixed, **more)
        for width in (520, 2568, 5120, 7168, *wide):
            found += both(f"{dtype} {width} x {equal}, float rows", width=width, **floats, **more)
        floats = {"scale": ("token", FP32), "shift": ("token", FP32)}
        found += both(f"{dtype} 520 x {equal}, float rows of tokens", width=520, **floats, **more)
        more |= {"tokens": 151, "scale": ("channel", dtype), "shift": ("channel", dtype)}
        found.append(Case(f"{dtype} many 120 x {equal}", width=120, **more))
    return found


CASES = {case.name: case for case in cases()}
EQUAL_CASES = {case.name: case for case in equal_cases()}
CUDA_CASES = CASES | {case.name: case for case in shape_cases()}


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    hold(case, run, device)
