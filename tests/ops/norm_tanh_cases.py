"""Calls for every implementation of norm_tanh_mul_add and its twin, checked by the judge's rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    norm_type: str = "rms"
    scale: How = ("row", BF16)
    shift: How = ("token", BF16)
    scale2: How | None = None  # if given, the op is the twin with a second norm
    weight: torch.dtype | None = None
    bias: torch.dtype | None = None
    gaps: bool = False
    flat: bool = False
    offset: float = 0.5
    equal: float | None = None  # value of every element of x
    reach: float = 1.0  # magnitude of the tanh's argument

    @property
    def op(self) -> str:
        return "norm_tanh_mul_add" if self.scale2 is None else "norm_tanh_mul_add_norm_scale"

    @property
    def scalars(self) -> dict[str, Any]:
        return {"norm_type": self.norm_type, "eps": 1e-5}

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        own = Drawing(
            self.name, self.batch, self.tokens, self.width, self.frames, self.dtype, device=device, offset=self.offset,
            gaps=self.gaps, flat=self.flat,
        )  # fmt: skip
        given: dict[str, Tensor | None] = {
            "x": own.tokens(),
            "scale": own.modulation(self.scale) * self.reach,
            "shift": own.modulation(self.shift),
            "weight": own.affine(self.weight, 1),
            "bias": own.affine(self.bias, 0),
        }
        if self.equal is not None:
            made_equal(given, self.equal)
        if self.scale2 is not None:
            given["scale2"] = own.modulation(self.scale2)
            given |= {"weight2": own.affine(self.weight, 1), "bias2": own.affine(self.bias, 0)}
        return given


def cases() -> list[Case]:
    def both(name: str, **more: Any) -> Iterator[Case]:
        yield Case(name, **more)
        yield Case(f"twice {name}", scale2=more.get("scale", ("row", BF16)), **more)

    found: list[Case] = []
    for layout in ("number", "batch", "frame", "column", "expanded", "chunk"):
        found.append(
            Case(f"twice {layout} modulation", scale=(layout, BF16), shift=(layout, FP32), scale2=(layout, FP16))
        )
    for dtype in (BF16, FP16, FP32):
        for norm_type in ("layer", "rms"):
            more = {"dtype": dtype, "norm_type": norm_type, "scale": ("row", dtype), "shift": ("token", dtype)}
            found.append(Case(f"{norm_type} {dtype}", **more))
            found += both(
                f"{norm_type} {dtype} weight", **more, weight=FP32, bias=dtype if norm_type == "layer" else None
            )
    for reach in (0.01, 3.0, 400.0):  # near zero, across the switch between two formulas, and where tanh is one
        found.append(Case(f"reach {reach}", dtype=FP32, scale=("token", FP32), shift=("token", FP32), reach=reach))
    for number, width in enumerate((1, 7, 129, 3840)):
        found += both(f"width {width}", width=width, tokens=3, frames=1, norm_type=("rms", "layer")[number % 2])
    found += both("width 16390", width=16390, tokens=2, batch=1, frames=1, norm_type="layer", weight=BF16)
    found.append(Case("twice width 65536", width=65536, tokens=1, batch=1, frames=1, scale2=("row", BF16)))
    found += both("single tokens", batch=4, tokens=1, frames=1)
    found += both("gaps", gaps=True, width=96)
    found += both("gaps odd", gaps=True, width=97, dtype=FP32, shift=("token", FP32), norm_type="layer")
    found.append(Case("flat", flat=True, batch=1, scale=("channel", BF16), shift=("flat tokens", BF16)))
    found.append(Case("no tokens", tokens=0, frames=1))
    found.append(Case("twice no batch", batch=0, frames=1, scale2=("row", BF16)))
    return found


def cuda_cases() -> list[Case]:
    """Return cases that reach the compiled kernels which no other case reaches."""
    rms = {"scale": ("row", FP32), "shift": ("token", FP32), "dtype": FP32}
    found: list[Case] = []
    for scale2 in (None, ("row", BF16)):
        more = {"scale2": scale2, "tokens": 3, "batch": 1, "frames": 1}
        twice = "twice " if scale2 else ""
        found.append(Case(f"{twice}exact 3840", width=3840, weight=BF16, **more))
        found.append(Case(f"{twice}early 4160", width=4160, **more))
        found.append(Case(f"{twice}streamed 16392", width=16392, **more))
        found.append(Case(f"{twice}any 520", width=520, scale=("row", FP32), **more))
        found.append(Case(f"{twice}odd 777", width=777, norm_type="layer", weight=BF16, **more | {"tokens": 9}))
        found.append(Case(f"{twice}odd apart 1161", width=1161, gaps=True, **more))
        found.append(Case(f"{twice}odd any 777", width=777, weight=FP32, **more))
        wide = more | rms | ({"scale2": ("row", FP32)} if scale2 else {})
        found.append(Case(f"{twice}float late 700", width=700, norm_type="layer", offset=1000.0, **wide))
        found.append(Case(f"{twice}float any 700", width=700, norm_type="layer", weight=BF16, bias=FP32, **wide))
        found.append(Case(f"{twice}float odd 701", width=701, norm_type="layer", **wide))
        found.append(Case(f"{twice}float streamed", width=8196, norm_type="layer", **wide))
        found.append(Case(f"{twice}float odd any 701", width=701, weight=BF16, **wide))
        found.append(Case(f"{twice}float small", width=64, weight=BF16, **wide))
    half = {"scale2": ("row", BF16), "batch": 1, "frames": 1}
    kept = {**half, "tokens": 13, "frames": 1}
    found.append(Case("kept 3840", width=3840, weight=BF16, **kept))
    found.append(Case("kept 3200, layer", width=3200, norm_type="layer", weight=BF16, **kept))
    found.append(Case("kept 4096, batches", width=4096, **kept | {"batch": 2}))
    found.append(Case("kept 3080, one shift", width=3080, shift=("row", BF16), **kept))
    found.append(Case("kept 3072, frames", width=3072, scale=("frame", BF16), **kept | {"frames": 2, "tokens": 12}))
    found.append(Case("too few tokens to keep", width=3840, **half, tokens=7))
    found.append(Case("too many batches to keep", width=3840, **kept | {"batch": 3}))
    found.append(Case("too narrow to keep", width=2048, **kept))
    found.append(Case("too wide to keep", width=4104, **kept))
    found.append(Case("a scale for each token", width=3840, scale=("token", BF16), **kept))
    return found


def equal_cases() -> list[Case]:
    """Return rows of equal half-width elements, for each kind of CUDA kernel."""
    found: list[Case] = []
    for dtype, equal in itertools.product((BF16, FP16), EQUAL_VALUES):
        row = ("row", dtype)
        more: dict[str, Any] = {"dtype": dtype, "norm_type": "layer", "equal": equal, "batch": 1, "frames": 1}
        more |= {"scale": row, "scale2": row, "shift": ("token", dtype), "reach": 20.0}
        for width in (*EQUAL_WIDTHS, 520, 777, 3840, 8187):
            found.append(Case(f"{dtype} {width} x {equal}", width=width, tokens=3, **more))
        for width in (520, 777):
            found.append(Case(f"{dtype} {width} x {equal}, weight", width=width, tokens=3, weight=FP32, **more))
        found.append(Case(f"{dtype} 3080 x {equal}, kept", width=3080, tokens=9, **more))
        if dtype == BF16:  # sums of so many equal float16 numbers are rounded
            found.append(Case(f"{dtype} 16392 x {equal}", width=16392, tokens=1, **more))
    return found


CASES = {case.name: case for case in cases()}
EQUAL_CASES = {case.name: case for case in equal_cases()}
CUDA_CASES = CASES | {case.name: case for case in cuda_cases()}


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    hold(case, run, device)
