"""Calls with x of more than three axes, for every op over tokens on every backend: exact ones have the chain's bits,
and norms follow the judge's rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from token_cases import BF16, FP32, hold
from torch import Tensor

from kernwright.core.registry import shipped_ops
from kernwright.judge.numerics.contracts import same_bits

TABLES = {"rms_modulate_from_table": 2, "dual_modulate_from_table": 4}  # number of rows of each table

ALIKE = ("x", "residual", "update")
AFFINE = ("weight", "bias", "weight2", "bias2")
EXACT = ("scale_shift", "residual_gate", "ernie_residual_gate")
OPS = (
    *EXACT, "norm_scale_shift", "residual_norm_scale_shift", "norm_tanh_mul_add", "norm_tanh_mul_add_norm_scale",
    "rms_modulate", "dual_modulate", *TABLES, "ernie_norm_modulate", "ernie_residual_norm_modulate",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call over `[B, F, P, D]`, or over the axes in `axes`. Modulations take their layouts in turn: `BF1` is `[B,
    F, 1, D]`, `P` is `[P, D]`, `D` is `[D]`, and one of `6` is a chunk of a projection six times as wide."""

    name: str
    op: str
    layouts: tuple[str, ...] = ("BF1", "BF1")
    lies: str = "dense"
    axes: str = "BFP"
    width: int = 24
    dtype: torch.dtype = BF16
    other: torch.dtype | None = None  # dtype of the modulations
    affine: bool = False
    empty: str = ""  # axes of size 0
    offset: float = 0.5

    def size(self, axis: str) -> int:
        return 0 if axis in self.empty else {"1": 1, "B": 2, "F": 3, "P": 5, "Q": 2, "D": self.width}[axis]

    @property
    def residual(self) -> bool:
        return self.op.startswith("residual")

    @property
    def scalars(self) -> dict[str, Any]:
        return dict(shipped_ops()[self.op].scalar_defaults)

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        generator = torch.Generator().manual_seed(sum(map(ord, self.name)))

        def draw(*sizes: int, dtype: torch.dtype, scale: float = 1.0, around: float = 0.0) -> Tensor:
            return (torch.randn(sizes, generator=generator) * scale + around).to(dtype).to(device)

        def tokens() -> Tensor:
            sizes, more = [self.size(axis) for axis in self.axes], {"dtype": self.dtype, "around": self.offset}
            if self.lies == "turned":  # the leading axes are in another order
                order = list(range(len(sizes)))[::-1]
                turned = draw(*(sizes[axis] for axis in order), self.width, **more)
                return turned.permute(*order, len(sizes))
            if self.lies == "packed":  # x is one of three chunks of a projection
                return draw(*sizes, 3 * self.width, **more).chunk(3, dim=-1)[1]
            if self.lies == "heads":  # x has the queries of a joint projection of queries, keys and values
                return draw(*sizes[:-1], 3, sizes[-1], self.width, **more).select(-3, 1)
            if self.lies == "cut":
                whole = draw(*sizes[:-1], sizes[-1] + 1, self.width + 5, **more)
                return whole[..., : sizes[-1], 2 : 2 + self.width]
            if self.lies == "expanded":
                return draw(*sizes[1:], self.width, **more).expand(*sizes, self.width)
            return draw(*sizes, self.width, **more)

        def modulation(layout: str) -> Tensor:
            own: dict[str, Any] = {"dtype": self.other or self.dtype, "scale": 0.25}
            if layout == "number":
                return draw(dtype=own["dtype"], scale=0.25)
            if layout.startswith("6"):
                sizes = [self.size(axis) for axis in layout[1:]]
                return draw(*sizes, 6 * self.width, **own).chunk(6, dim=-1)[2]
            return draw(*(self.size(axis) for axis in layout.removesuffix("D")), self.width, **own)

        given: dict[str, Tensor | None] = {}
        layouts, count = self.layouts, 0
        for parameter in shipped_ops()[self.op].tensor_parameters:
            if parameter.name in ALIKE:
                given[parameter.name] = tokens()
            elif parameter.name == "temb_scale_shift":  # has the last two axes before the channels
                sizes = [self.size(axis) for axis in f"11{layouts[0].replace('number', '').removesuffix('D')}"[-2:]]
                given[parameter.name] = draw(
                    *sizes, TABLES[self.op] * self.width, dtype=self.other or self.dtype, scale=0.25
                )
            elif parameter.name == "scale_shift_table":
                given[parameter.name] = draw(TABLES[self.op], self.width, dtype=self.dtype, scale=0.25)
            elif parameter.name in AFFINE:
                is_given = (self.affine and "bias" not in parameter.name) or not parameter.optional
                given[parameter.name] = draw(self.width, dtype=FP32, scale=0.25, around=1.0) if is_given else None
            else:
                given[parameter.name] = modulation(layouts[count % len(layouts)])
                count += 1
        return given


def cases() -> list[Case]:
    found: list[Case] = []
    for op in OPS:
        found += [Case(f"{op} {lies}", op, lies=lies) for lies in LIES]
        found += [Case(f"{op} {' '.join(layouts)}", op, layouts) for layouts in LAYOUTS]
        found += [
            Case(f"{op} fp32 rows", op, ("BF1", "B11"), other=FP32, width=33),
            Case(f"{op} walked", op, ("B11", "BF1"), "cut", affine=True),
            Case(f"{op} five axes", op, ("BF11", "B1PQ", "Q"), "turned", "BFPQ"),
            Case(f"{op} no frames", op, ("B11", "BF1"), empty="F"),
            Case(f"{op} no batch", op, ("BF1", "P"), empty="B"),
        ]
    return found


LIES = ("dense", "turned", "packed", "heads", "cut", "expanded")
LAYOUTS = (
    ("BF1", "B11"), ("1F1", "D"), ("P", "BFP"), ("B1P", "BF1"), ("number", "111"), ("FP", "6BF1"), ("1F1", "B1P", "P"),
)  # fmt: skip
CASES = {case.name: case for case in cases()}


def of(*ops: str) -> dict[str, Case]:
    """Return the cases of some ops."""
    return {name: case for name, case in CASES.items() if case.op in ops}


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    def watched(*given: Any, **scalars: Any) -> Any:
        found = run(*given, **scalars)
        for own, wanted in zip(parts(found), shipped_ops()[case.op].call(case.tensors(device), scalars), strict=True):
            assert own.shape == wanted.shape and own.dtype == wanted.dtype
            if case.op in EXACT:
                assert same_bits(own, wanted), f"{case.name}: differs in its bits from the chain"
        return found

    if case.op not in EXACT:
        return hold(case, watched, device)
    tensors = case.tensors(device)
    watched(*tensors.values(), **case.scalars)
    for own, kept in zip(tensors.values(), case.tensors(device).values(), strict=True):
        assert own is None or kept is None or torch.equal(own, kept)
    return None


def parts(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)
