"""Calls for ERNIE's ops on every backend: norms follow the judge's rule, and the gate has the chain's bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from token_cases import BF16, FP16, FP32, Drawing, How, hold
from torch import Tensor

from kernwright.core.registry import shipped_ops
from kernwright.judge.numerics.contracts import same_bits

OPS = {"norm": "ernie_norm_modulate", "residual": "ernie_residual_norm_modulate", "gate": "ernie_residual_gate"}


@dataclass(frozen=True)
class Case:
    """One call: the tokens' sizes and dtype, each modulation's layout and dtype."""

    name: str
    kind: str = "norm"
    batch: int = 2
    tokens: int = 6
    width: int = 64
    dtype: torch.dtype = BF16
    update: torch.dtype | None = None  # dtype, if it differs from the tokens'
    gate: How = ("row", BF16)
    scale: How = ("row", BF16)
    weight: torch.dtype = BF16
    gaps: bool = False
    flat: bool = False
    offset: float = 0.5

    @property
    def op(self) -> str:
        return OPS[self.kind]

    @property
    def scalars(self) -> dict[str, Any]:
        return {} if self.kind == "gate" else {"eps": 1e-6}

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        own = Drawing(
            self.name, self.batch, self.tokens, self.width, 1, self.dtype, device=device, offset=self.offset,
            gaps=self.gaps, flat=self.flat,
        )  # fmt: skip
        given: dict[str, Tensor | None] = {"x" if self.kind == "norm" else "residual": own.tokens()}
        if self.kind != "norm":
            own.dtype = self.update or self.dtype
            given |= {"update": own.tokens(), "gate": own.modulation(self.gate)}
        if self.kind != "gate":
            given |= {"scale": own.modulation(self.scale), "shift": own.modulation(self.scale)}
            given["weight"] = own.affine(self.weight, 1)
        return given


def cases() -> list[Case]:
    def all_three(name: str, **more: Any) -> Iterator[Case]:
        for kind in OPS:
            yield Case(f"{kind} {name}", kind, **more)

    found: list[Case] = []
    for layout in ("number", "channel", "row", "token", "flat tokens", "column", "expanded", "chunk"):
        found.append(Case(f"residual {layout} modulation", "residual", scale=(layout, FP32), gate=(layout, BF16)))
        found.append(Case(f"gate {layout}", "gate", gate=(layout, BF16)))
    for dtype in (BF16, FP16, FP32):
        found += all_three(f"{dtype}", dtype=dtype, gate=("token", dtype), scale=("row", dtype), weight=dtype)
    found.append(Case("residual mixed", "residual", dtype=FP32, update=BF16, gate=("row", FP16), weight=FP32))
    found.append(Case("gate mixed", "gate", dtype=FP16, update=BF16, gate=("row", FP32)))
    found.append(Case("gate wide residual", "gate", dtype=FP32, update=BF16, gate=("row", FP16)))
    for width in (1, 7, 129, 4096):
        found += all_three(f"width {width}", width=width, tokens=3, batch=1)
    found += all_three("width 16390", width=16390, tokens=1, batch=2)
    found += all_three("single tokens", batch=4, tokens=1)
    found += all_three("gaps", gaps=True, width=96)
    found += all_three("gaps odd", gaps=True, width=97, dtype=FP32)
    found += all_three("flat", flat=True, batch=1, gate=("channel", BF16), scale=("flat tokens", BF16))
    found += all_three("no tokens", tokens=0)
    return found


def cuda_cases() -> list[Case]:
    """Return cases that reach the CUDA kernels which no other case reaches."""
    found: list[Case] = []
    for kind in ("norm", "residual"):
        more: dict[str, Any] = {"kind": kind, "batch": 1, "tokens": 3}
        found.append(Case(f"{kind} wide 1032", width=1032, **more))
        found.append(Case(f"{kind} any 520", width=520, scale=("token", FP32), update=FP32, **more))
        found.append(Case(f"{kind} odd 777", width=777, **more))
        found.append(Case(f"{kind} odd apart 777", width=777, gaps=True, **more))
        found.append(Case(f"{kind} streamed 16400", width=16400, **more))
    return found


CASES = {case.name: case for case in cases()}
CUDA_CASES = CASES | {case.name: case for case in cuda_cases()}


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    """Check a case. Nothing rounds between loads and stores, so half-width results equal the chain's, except in ties of
    float32."""

    def watched(*given: Any, **scalars: Any) -> Any:
        found = run(*given, **scalars)
        eager = shipped_ops()[case.op].call(case.tensors(device), case.scalars)
        for own, wanted in zip((found,) if isinstance(found, Tensor) else found, eager, strict=True):
            if case.kind == "gate":
                assert same_bits(own, wanted), f"{case.name}: differs in its bits from the chain"
            elif case.dtype != FP32:
                assert (own != wanted).sum() <= 1 + 0.02 * own.numel(), (
                    f"{case.name}: it rounds where the chain does not"
                )
        return found

    hold(case, watched, device)
