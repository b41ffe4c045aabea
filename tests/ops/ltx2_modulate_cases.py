"""Calls for every implementation of LTX-2's modulated norms, checked by the judge's rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from token_cases import BF16, FP16, FP32, Drawing, How, hold
from torch import Tensor

from kernwright.core.registry import shipped_ops


@dataclass(frozen=True)
class Case:
    """One call: x's sizes and dtype, and each modulation's layout and dtype, or the dtypes of a table and an embedding.

    With `gaps`, the table and the embedding are slices of larger tensors.
    """

    name: str
    batch: int = 2
    tokens: int = 6
    width: int = 64
    dtype: torch.dtype = BF16
    scale: How = ("row", BF16)
    shift: How = ("row", BF16)
    second: bool = False
    table: tuple[torch.dtype, torch.dtype] | None = None  # dtypes of the embedding and of the table
    per_token: bool = False  # one embedding per token
    gaps: bool = False
    flat: bool = False
    offset: float = 0.5

    @property
    def op(self) -> str:
        return f"{'dual' if self.second else 'rms'}_modulate{'_from_table' if self.table else ''}"

    @property
    def scalars(self) -> dict[str, Any]:
        return {"eps": 1e-6}

    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]:
        own = Drawing(
            self.name, self.batch, self.tokens, self.width, 1, self.dtype, device=device, offset=self.offset,
            gaps=self.gaps, flat=self.flat,
        )  # fmt: skip
        x = own.tokens()
        if self.table is not None:
            count = 4 if self.second else 2
            more = 3 if self.gaps else 0  # rows outside of the slice, one of them before it
            embedding = own.draw(self.batch, self.tokens if self.per_token else 1, (count + more) * self.width) / 4
            table = own.draw(count + more, self.width) / 4
            dtypes = zip((embedding, table), self.table, strict=True)
            temb, rows = (given.to(dtype).to(device) for given, dtype in dtypes)
            if more:
                temb, rows = temb[..., self.width : (1 + count) * self.width], rows[1 : 1 + count]
            return {"x": x, "temb_scale_shift": temb, "scale_shift_table": rows}
        names = ("scale0", "shift0", "scale1", "shift1") if self.second else ("scale", "shift")
        return {"x": x} | {
            name: own.modulation(self.scale if name.startswith("scale") else self.shift) for name in names
        }


def cases() -> list[Case]:
    def both(name: str, **more: Any) -> Iterator[Case]:
        yield Case(name, **more)
        yield Case(f"dual {name}", second=True, **more)

    def tables(name: str, **more: Any) -> Iterator[Case]:
        yield Case(f"table {name}", second=True, **more)
        yield Case(f"rms table {name}", **more)

    found: list[Case] = []
    for layout in ("number", "one", "channel", "row", "token", "tokens of one", "flat tokens", "column", "expanded"):
        found.append(Case(f"{layout} modulation", scale=(layout, BF16), shift=(layout, FP32)))
    found.append(Case("dual chunk", second=True, scale=("chunk", BF16), shift=("chunk", BF16)))
    for dtype in (BF16, FP16, FP32):
        found += both(f"{dtype}", dtype=dtype, scale=("token", dtype), shift=("token", dtype))
        for table in (BF16, FP16, FP32):
            found += tables(f"{dtype} {table}", dtype=FP16, table=(dtype, table), per_token=dtype == FP16)
    found += both("mixed", dtype=FP16, scale=("row", BF16), shift=("token", FP32))
    for width in (1, 7, 129, 2048):
        found += both(f"width {width}", width=width, tokens=3)
        found += tables(f"width {width}", width=width, tokens=3, table=(BF16, BF16))
    found += both("width 16390", width=16390, tokens=2, batch=1)
    found += tables("width 65536", width=65536, tokens=1, batch=1, table=(BF16, FP32))
    found += both("single tokens", batch=4, tokens=1)
    found += tables("single tokens", batch=4, tokens=1, table=(BF16, BF16))
    found += both("gaps", gaps=True, width=96, shift=("token", BF16))
    found += tables("gaps", gaps=True, width=96, per_token=True, table=(BF16, BF16))
    found += tables("gaps odd", gaps=True, width=97, dtype=FP32, table=(BF16, BF16))
    found.append(Case("flat", flat=True, batch=1, scale=("channel", BF16), shift=("flat tokens", BF16)))
    found.append(Case("far from zero", dtype=FP32, offset=1000.0, width=513, scale=("row", FP32), shift=("row", FP32)))
    found += both("no tokens", tokens=0)
    found += tables("no batch", batch=0, table=(BF16, BF16))
    return found


def cuda_cases() -> list[Case]:
    """Return cases with rows of x's dtype whose tokens fill each CUDA kernel that holds a token."""
    found: list[Case] = []
    own_rows = (BF16, BF16)
    for width in (2044, 4096, 8188):
        found.append(Case(f"held {width}", width=width, tokens=2, scale=("token", BF16), shift=("row", BF16)))
        found.append(Case(f"dual held {width}", width=width, tokens=2, second=True, shift=("token", BF16)))
        found.append(Case(f"table held {width}", width=width, tokens=2, second=True, table=own_rows))
        found.append(Case(f"rms table held {width}", width=width, tokens=2, table=own_rows, per_token=width == 4096))
    found.append(Case("one by one", width=512, gaps=True, second=True, scale=("chunk", FP16)))
    return found


CASES = {case.name: case for case in cases()}
CUDA_CASES = CASES | {case.name: case for case in cuda_cases()}


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    """Check a case. It rounds where the chain does, so it is much closer to the chain than a rounding of the
    modulation."""

    def watched(*given: Any, **scalars: Any) -> Any:
        found = run(*given, **scalars)
        eager = shipped_ops()[case.op].call(case.tensors(device), case.scalars)
        for own, wanted in zip((found,) if isinstance(found, Tensor) else found, eager, strict=True):
            torch.testing.assert_close(own, wanted, atol=2e-6, rtol=1e-5)
        return found

    hold(case, watched, device)
