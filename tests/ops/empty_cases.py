"""Calls without elements: no batch, no tokens or no channels, with every layout of modulations. Every backend must
return the same as the reference. (The reference itself refuses zero frames.)"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from token_cases import BF16
from torch import Tensor

from kernwright.core.registry import shipped_ops

TABLES = {"rms_modulate_from_table": 2, "dual_modulate_from_table": 4}  # rows of each table

OVER_TOKENS = (
    "scale_shift", "residual_gate", "norm_scale_shift", "residual_norm_scale_shift", "norm_tanh_mul_add",
    "norm_tanh_mul_add_norm_scale",
)  # fmt: skip
BROADCAST = (
    "rms_modulate",
    "dual_modulate",
    "ernie_norm_modulate",
    "ernie_residual_norm_modulate",
    "ernie_residual_gate",
)
SELECT = ("norm_scale_shift_select", "residual_norm_scale_shift_select")
OPS = (*OVER_TOKENS, *BROADCAST, *SELECT, *TABLES)
ALIKE = ("x", "residual", "update")
AFFINE = ("weight", "bias", "weight2", "bias2")


@dataclass(frozen=True)
class Case:
    """A call with x of the given sizes, one of them 0, and one layout for all modulations."""

    op: str
    sizes: tuple[int, ...]
    layout: str
    is_expanded: bool = False  # x and similar tensors are one expanded row, whose strides a result may copy

    @property
    def name(self) -> str:
        return f"{self.op} {'x'.join(map(str, self.sizes))} {self.layout}{' expanded' * self.is_expanded}"

    @property
    def scalars(self) -> dict[str, Any]:
        return dict(shipped_ops()[self.op].scalar_defaults)

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        batch, tokens, width = (1, *self.sizes)[-3:]
        shapes: dict[str, tuple[int, ...]] = {
            "number": (), "one": (1,), "channel": (width,), "batch": (batch, width), "row": (batch, 1, width),
            "single": (1, 1, width), "token": (batch, tokens, width), "tokens of one": (1, tokens, width),
            "flat tokens": (tokens, width), "frame": (batch, 1, 1, width), "column": (batch, tokens, 1),
            "whole": tuple(self.sizes),
        }  # fmt: skip

        def zeros(*sizes: int, dtype: torch.dtype = BF16) -> Tensor:
            return torch.zeros(sizes, dtype=dtype, device=device)

        given: dict[str, Tensor | None] = {}
        for parameter in shipped_ops()[self.op].tensor_parameters:
            if parameter.name in ALIKE:
                given[parameter.name] = zeros(*self.sizes)
                if self.is_expanded:
                    given[parameter.name] = zeros(*(min(size, 1) for size in self.sizes[:-1]), width).expand(self.sizes)
            elif parameter.name in AFFINE:
                given[parameter.name] = None if parameter.optional else zeros(width)
            elif parameter.name == "index":
                given[parameter.name] = zeros(batch, tokens, dtype=torch.int32)
            elif parameter.name == "temb_scale_shift":
                given[parameter.name] = zeros(batch, tokens if self.layout == "token" else 1, TABLES[self.op] * width)
            elif parameter.name == "scale_shift_table":
                given[parameter.name] = zeros(TABLES[self.op], width)
            elif self.op in SELECT and parameter.name != "residual_gate":
                given[parameter.name] = zeros(batch, width)
            else:
                given[parameter.name] = zeros(*shapes[self.layout])
        return given


def cases() -> list[Case]:
    found = []
    for op in OPS:
        layouts = ["number", "one", "channel", "row", "single", "token", "tokens of one", "column"]
        layouts += ["batch", "frame"] if op in (*OVER_TOKENS, *SELECT) else ["flat tokens"]
        if op in TABLES or op == "norm_scale_shift_select":
            layouts = ["row", "token"]
        for sizes, layout in itertools.product(((0, 3, 8), (2, 0, 8), (2, 3, 0), (0, 0, 8), (0, 0, 0)), layouts):
            found.append(Case(op, sizes, layout))
        found += [Case(op, sizes, "row", is_expanded=True) for sizes in ((0, 3, 8), (2, 0, 8), (2, 3, 0))]
        if op not in (*SELECT, *TABLES):
            for sizes, layout in itertools.product(((0, 8), (3, 0)), ("number", "channel", "whole")):
                found.append(Case(op, sizes, layout))
            for sizes, layout in itertools.product(((2, 0, 3, 8), (0, 2, 3, 8), (2, 2, 3, 0)), ("channel", "whole")):
                found.append(Case(op, sizes, layout))
    return found


CASES = {case.name: case for case in cases()}


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    wanted = shipped_ops()[case.op].call(case.tensors(device), case.scalars)
    found = run(*case.tensors(device).values(), **case.scalars)
    for own, expected in zip((found,) if isinstance(found, Tensor) else found, wanted, strict=True):
        assert (own.shape, own.dtype, own.device) == (expected.shape, expected.dtype, expected.device), case.name
