"""Calls for every implementation of norm_scale_shift_select and its residual twin, checked by the judge's rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from token_cases import BF16, EQUAL_VALUES, EQUAL_WIDTHS, FP16, FP32, Drawing, How, hold, made_equal
from torch import Tensor

from kernwright.core.registry import shipped_ops

FAMILY = "norm_modulation"


@dataclass(frozen=True)
class Case:
    """One call: x's sizes and dtype, the sets' layout and dtypes, and how tokens choose a set."""

    name: str
    batch: int = 2
    tokens: int = 6
    width: int = 64
    frames: int = 3
    dtype: torch.dtype = BF16
    sets: str = "batch"
    dtypes: tuple[torch.dtype, ...] = (BF16,) * 6  # dtypes of scale0, shift0, gate0, scale1, shift1 and gate1
    index: torch.dtype = torch.int32
    choice: str = "token"
    weight: torch.dtype | None = None
    bias: torch.dtype | None = None
    residual_gate: How | None = None  # if given, the op is the residual twin
    gaps: bool = False
    offset: float = 0.5
    equal: float | None = None  # value of every element of x

    @property
    def op(self) -> str:
        return "norm_scale_shift_select" if self.residual_gate is None else "residual_norm_scale_shift_select"

    @property
    def scalars(self) -> dict[str, Any]:
        return {"eps": 1e-6}

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        own = Drawing(
            self.name, self.batch, self.tokens, self.width, self.frames, self.dtype, device=device, offset=self.offset,
            gaps=self.gaps,
        )  # fmt: skip
        given: dict[str, Tensor | None] = {"x": own.tokens()}
        if self.residual_gate is not None:
            given |= {"residual": own.tokens(), "residual_gate": own.modulation(self.residual_gate)}
        if self.equal is not None:
            made_equal(given, self.equal)
        names = ("scale0", "shift0", "gate0", "scale1", "shift1", "gate1")
        for name, dtype in zip(names, self.dtypes, strict=True):
            # A gate is returned in its own layout, so a number would be narrower than x.
            layout = "batch" if self.sets == "numbers" and name.startswith("gate") else self.sets
            given[name] = own.modulation((layout, dtype))
        given["index"] = self.chosen(own).to(self.index).to(device)
        return given | {"weight": own.affine(self.weight, 1), "bias": own.affine(self.bias, 0)}

    def chosen(self, own: Drawing) -> Tensor:
        b, s = self.batch, self.tokens
        sizes: dict[str, tuple[int, ...]] = {
            "token": (b, s), "turned": (s, b), "of one": (1, s), "of none": (s,), "wild": (b, s), "batch": (b, 1),
            "single": (1, 1), "number": (),
        }  # fmt: skip
        index = (own.draw(*sizes[self.choice]) > 0).long()
        if self.choice == "wild":  # far above 1 and below 0
            index *= torch.tensor([2, -1, 255, 7, -128, 2**40])[torch.arange(s) % 6]
        return index.t() if self.choice == "turned" else index


def cases() -> list[Case]:
    def both(name: str, gate: How = ("token", BF16), **more: Any) -> Iterator[Case]:
        yield Case(name, **more)
        yield Case(f"residual {name}", residual_gate=gate, **more)

    found: list[Case] = []
    for layout in ("number", "frame", "column", "expanded", "chunk"):
        found.append(Case(f"residual gate {layout}", residual_gate=(layout, FP32)))
    for sets in ("batch", "batch of one", "numbers", "chunk rows"):
        found.append(Case(f"sets {sets}", sets=sets))
    for choice in ("turned", "of one", "of none"):
        found.append(Case(f"choice {choice}", choice=choice))
    # If tokens or batch entries all choose one row, the gate is that row.
    for choice in ("batch", "single", "number"):
        found += both(f"choice {choice}", choice=choice)
        found.append(Case(f"choice {choice} of one set", choice=choice, sets="batch of one", width=72))
    found += both("choice of one and one set", choice="of one", sets="batch of one", gate=("frame", BF16))
    found += both("choice of batches, odd", choice="batch", width=777, tokens=3, frames=1)
    found += both("choice of batches, gaps", choice="batch", gaps=True, dtypes=(FP32, BF16, FP16, BF16, FP16, FP32))
    found += both("wild choice", choice="wild", index=torch.int64)
    for index in (torch.bool, torch.uint8, torch.int8):
        found.append(Case(f"index {index}", index=index))
    for dtype in (BF16, FP16, FP32):
        found.append(Case(f"{dtype}", dtype=dtype, dtypes=(dtype,) * 6))
        found += both(f"{dtype} affine", dtype=dtype, weight=FP32, bias=dtype)
    found += both("mixed", dtypes=(FP32, BF16, FP16, BF16, FP16, FP32), weight=BF16)
    for width in (1, 7, 129):
        found += both(f"width {width}", width=width, tokens=5, frames=1)
    found += both("width 3072", width=3072, tokens=3, batch=1, frames=1)
    found += both("width 16400", width=16400, tokens=2, batch=1, frames=1)
    for dtype in (BF16, FP32):
        found += both(f"single tokens {dtype}", batch=4, tokens=1, frames=1, dtype=dtype, dtypes=(dtype,) * 6)
    found += both("gaps", gaps=True, width=96)
    found += both("gaps odd", gaps=True, width=97, dtype=FP32)
    found.append(Case("far from zero", dtype=FP32, offset=1000.0, width=513, dtypes=(FP32,) * 6))
    found.append(Case("no tokens", tokens=0, frames=1))
    found.append(Case("residual no batch", batch=0, frames=1, residual_gate=("token", BF16)))
    return found


def cuda_cases() -> list[Case]:
    """Return cases that reach the compiled kernels which no other case reaches."""

    def both(name: str, dtype: torch.dtype, width: int, **more: Any) -> Iterator[Case]:
        more = {"dtype": dtype, "dtypes": (dtype,) * 6, "width": width, "tokens": 4, "frames": 2} | more
        yield Case(name, **more)
        yield Case(f"residual {name}", residual_gate=("token", dtype), **more)

    found: list[Case] = []
    for dtype in (BF16, FP32):
        found += both(f"late {dtype}", dtype, 1288)
        found += both(f"odd {dtype}", dtype, 777)
        found += both(f"any {dtype}", dtype, 1544, weight=BF16, bias=FP32)
        found += both(f"odd any {dtype}", dtype, 777, weight=BF16)
        found += both(f"streamed {dtype}", dtype, 16392, batch=1)
    found += both("exact", BF16, 3072, index=torch.int64)
    found += both("odd apart", BF16, 777, gaps=True)
    found.append(Case("residual late frames", width=1288, batch=1, residual_gate=("frame", BF16)))
    return found


def equal_cases() -> list[Case]:
    """Return rows of equal half-width elements, for each kind of CUDA kernel."""
    found: list[Case] = []
    for dtype, equal in itertools.product((BF16, FP16), EQUAL_VALUES):
        more: dict[str, Any] = {"dtype": dtype, "dtypes": (dtype,) * 6, "equal": equal, "batch": 1, "frames": 1}
        more |= {"residual_gate": ("token", dtype)}
        for width in (*EQUAL_WIDTHS, 777, 1288, 3072, 8187):
            found.append(Case(f"{dtype} {width} x {equal}", width=width, tokens=3, **more))
        for width in (777, 1544):
            found.append(Case(f"{dtype} {width} x {equal}, weight", width=width, tokens=3, weight=FP32, **more))
        if dtype == BF16:  # sums of so many equal float16 numbers are rounded
            found.append(Case(f"{dtype} 16392 x {equal}", width=16392, tokens=1, **more))
    return found


CASES = {case.name: case for case in cases()}
EQUAL_CASES = {case.name: case for case in equal_cases()}
CUDA_CASES = CASES | {case.name: case for case in cuda_cases()}


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    """Check a case. The chosen gate is copied, so its bits must be equal too."""

    def watched(*given: Any, **scalars: Any) -> Any:
        found = run(*given, **scalars)
        chosen = shipped_ops()[case.op].call(case.tensors(device), case.scalars)[-1]
        assert torch.equal(found[-1], chosen), f"{case.name}: the gate is not the one that was picked"
        return found

    hold(case, watched, device)
