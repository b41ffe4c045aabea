"""Calls for every implementation of scale_shift, residual_gate and broadcast_add, compared bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernwright.core.registry import shipped_ops
from kernwright.core.rounding import over_tokens

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
How = tuple[str, torch.dtype]
BITS = {BF16: torch.int16, FP16: torch.int16, FP32: torch.int32}


@dataclass(frozen=True)
class Case:
    """One call: sizes and dtype of the tokens, layout and dtype of each modulation.

    scale is the gate of residual_gate. `residual` is the dtype of its residual if it differs from the tokens'.
    """

    name: str
    op: str = "scale_shift"
    batch: int = 2
    tokens: int = 6
    width: int = 64
    frames: int = 3
    dtype: torch.dtype = BF16
    scale: How = ("batch", BF16)
    shift: How = ("batch", BF16)
    residual: torch.dtype | None = None
    constant: float = 1.0
    gaps: bool = False  # gaps between tokens, and batches in another order
    flat: bool = False  # tokens are [S, D]
    hard: bool = False  # includes NaN, infinities, zeros of both signs, and numbers at the limits of the range
    summands: tuple[tuple[tuple[int, ...], torch.dtype], ...] = ()

    def tensors(self, device: str = "cpu") -> list[Tensor]:
        """Draw tensors on the CPU, so that every device gets the same numbers."""
        generator = torch.Generator().manual_seed(sum(map(ord, self.name)))

        def draw(sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            values = torch.randn(sizes, generator=generator)
            if self.hard:
                ends = torch.tensor([float("nan"), torch.inf, -torch.inf, 0.0, -0.0, 3e38, 1e-38, 60000.0, 6e-8, 1.0])
                chosen = torch.randint(0, 2 * len(ends), sizes, generator=generator)
                values = torch.where(chosen < len(ends), ends[chosen % len(ends)], values)
            return values.to(dtype).to(device)

        def tokens(dtype: torch.dtype) -> Tensor:
            if self.flat:
                return draw((self.tokens, self.width), dtype)
            if self.gaps:  # [S, B, D + 5], transposed and sliced
                wide = draw((self.tokens, self.batch, self.width + 5), dtype)
                return wide.transpose(0, 1)[..., 2 : 2 + self.width]
            return draw((self.batch, self.tokens, self.width), dtype)

        def modulation(how: How) -> Tensor:
            layout, dtype = how
            b, s, d = self.batch, self.tokens, self.width
            if layout == "expanded":
                return draw((1,), dtype).expand(d)
            if layout == "chunk":  # one of six chunks of a [B, 6 * D] projection, with rows far apart
                return draw((b, 6 * d), dtype).chunk(6, dim=-1)[1][:, None, :]
            if layout == "token chunk":
                return draw((b, s, 2 * d), dtype).chunk(2, dim=-1)[1]
            if layout == "off by three":  # a row that is not aligned to vectors
                return draw((d + 3,), dtype)[3:]
            sizes: tuple[int, ...] = {
                "number": (), "one": (1,), "channel": (d,), "batch": (b, d), "row": (b, 1, d), "single": (1, 1, d),
                "token": (b, s, d), "tokens of one": (1, s, d), "frame": (b, self.frames, 1, d),
                "frame of one": (1, self.frames, 1, d), "column": (b, s, 1), "flat tokens": (s, d),
                "two frames": (b, 2, 1, d),
            }[layout]  # fmt: skip
            return draw(sizes, dtype)

        if self.op == "broadcast_add":
            return [draw(sizes, dtype) for sizes, dtype in self.summands]
        if self.op == "residual_gate":
            return [tokens(self.residual or self.dtype), tokens(self.dtype), modulation(self.scale)]
        return [tokens(self.dtype), modulation(self.scale), modulation(self.shift)]

    @property
    def scalars(self) -> dict[str, float]:
        return {"scale_constant": self.constant} if self.op == "scale_shift" else {}

    @property
    def rounds_alike_on_a_cpu(self) -> bool:
        """Return whether torch rounds the same on a CPU as on a GPU. It does not for a number without an axis, of
        another dtype than the tokens, nor for a constant that a half-width scale cannot hold."""
        used = {"scale_shift": (self.scale, self.shift), "residual_gate": (self.scale,), "broadcast_add": ()}
        modulations: tuple[How, ...] = used[self.op]
        number = any(layout == "number" and dtype != self.dtype for layout, dtype in modulations)
        return not number and self.constant in (0.0, 1.0)


def cases() -> list[Case]:
    layouts = ["number", "one", "channel", "batch", "row", "single", "token", "tokens of one", "frame", "frame of one"]
    found = [
        Case(f"{layout} modulation", scale=(layout, BF16), shift=(layout, BF16))
        for layout in [*layouts, "column", "expanded", "chunk"]
    ]
    found += [
        Case("frame and channel", scale=("frame", FP32), shift=("channel", BF16)),
        Case("frames of two kinds", scale=("frame", BF16), shift=("two frames", BF16), width=72),
        Case("frame and token", scale=("frame", BF16), shift=("token", FP32), constant=0.0),
        Case("gate and residual", scale=("row", BF16), shift=("token", BF16), constant=0.0),
        Case("fp32 gate and residual", scale=("row", FP32), shift=("token", BF16), constant=0.0),
        Case("fp32 token chunks", scale=("token chunk", FP32), shift=("token chunk", FP32)),
        Case("per token and shared", scale=("token", BF16), shift=("channel", FP16)),
        Case("bf16 by fp16", scale=("channel", FP16), shift=("token", BF16)),
        Case("fp32 numbers", scale=("number", FP32), shift=("number", FP32), constant=1.1),
        Case("fp32 number and fp32 row", scale=("row", FP32), shift=("number", FP16), dtype=FP16),
        Case("bf16 numbers for fp32", scale=("number", BF16), shift=("number", FP16), dtype=FP32, constant=0.3),
        Case("another constant", constant=1.1, shift=("token", BF16)),
        Case("fp16", dtype=FP16, scale=("row", FP16), shift=("row", FP16)),
        Case("fp16 by fp32", dtype=FP16, scale=("row", FP32), shift=("token", FP16)),
        Case("fp32", dtype=FP32, scale=("row", FP32), shift=("row", FP32)),
        Case("fp32 by halves", dtype=FP32, scale=("row", BF16), shift=("token", FP16)),
        Case("hard bf16", hard=True, shift=("token", BF16)),
        Case("hard fp16", hard=True, dtype=FP16, scale=("row", FP16), shift=("token", FP16)),
        Case("hard fp32", hard=True, dtype=FP32, scale=("row", FP32), shift=("row", FP32), width=512),
        Case("hard fp16 by bf16", hard=True, dtype=FP16, scale=("row", FP16), shift=("token", BF16)),
        Case("hard mixed", hard=True, scale=("token", FP32), shift=("token", FP16)),
        Case("gaps", gaps=True, width=96),
        # One row of modulation for all tokens, so that only the tokens' own strides keep batches from being one run.
        Case("gaps of one row", gaps=True, width=96, scale=("channel", BF16), shift=("channel", BF16)),
        Case("gaps odd", gaps=True, width=97, dtype=FP32, scale=("row", FP32), shift=("token", FP32)),
        Case("flat", flat=True, batch=1, scale=("channel", BF16), shift=("flat tokens", BF16)),
        Case("one token", batch=1, tokens=1, frames=1),
        Case("single tokens", batch=5, tokens=1, frames=1, scale=("batch", BF16)),
        Case("many tokens", batch=3, tokens=700, width=40, frames=7, scale=("frame", BF16)),
        Case("many wide tokens", batch=1, tokens=37, width=3072, shift=("token", BF16)),
        Case("no tokens", tokens=0, frames=1, scale=("row", BF16)),
    ]
    for width in (1, 3, 8, 33, 130, 1023, 3073, 65536, 70001):
        found.append(Case(f"width {width}", width=width, tokens=3, frames=1, batch=1, scale=("row", FP32)))

    gates = ["number", "channel", "batch", "row", "token", "frame", "column", "chunk"]
    found += [Case(f"{layout} gate", "residual_gate", scale=(layout, BF16)) for layout in gates]
    found += [
        Case("gate fp32 tokens", "residual_gate", dtype=FP32, scale=("row", FP32), tokens=33),
        Case("gate fp16", "residual_gate", dtype=FP16, scale=("frame", FP16)),
        Case("gate promotes", "residual_gate", scale=("row", FP32)),
        Case("gate fp32 residual", "residual_gate", residual=FP32, scale=("channel", FP32), tokens=50),
        Case("gate fp32 residual alone", "residual_gate", residual=FP32, scale=("row", BF16), width=66),
        Case("gate bf16 residual of fp32", "residual_gate", dtype=FP32, residual=BF16, scale=("row", FP32)),
        Case("gate fp16 residual of fp32", "residual_gate", dtype=FP32, residual=FP16, scale=("frame", BF16), width=33),
        Case("gate bf16 residual of fp16", "residual_gate", dtype=FP16, residual=BF16, scale=("row", FP16), tokens=40),
        Case(
            "gate fp16 residual of bf16", "residual_gate", dtype=BF16, residual=FP16, scale=("token", BF16), gaps=True
        ),
        Case("gate bf16 residual by fp32", "residual_gate", dtype=FP16, residual=BF16, scale=("channel", FP32)),
        Case("gate bf16 residual by number", "residual_gate", dtype=FP16, residual=BF16, scale=("number", FP32)),
        Case("gate hard fp16 residual", "residual_gate", dtype=BF16, residual=FP16, scale=("row", BF16), hard=True),
        Case("gate hard residual of fp32", "residual_gate", dtype=FP32, residual=BF16, scale=("row", FP16), hard=True),
        Case("gate hard", "residual_gate", scale=("row", BF16), hard=True, tokens=40),
        Case("gate hard fp32", "residual_gate", dtype=FP32, scale=("token", FP32), hard=True),
        Case("gate odd", "residual_gate", width=3073, scale=("token", BF16), tokens=2),
        Case("gate gaps", "residual_gate", gaps=True, width=64),
        Case("gate flat", "residual_gate", flat=True, batch=1, scale=("channel", BF16)),
        Case("gate no batch", "residual_gate", batch=0, scale=("channel", BF16)),
    ]

    def add(name: str, *summands: tuple[tuple[int, ...], torch.dtype], hard: bool = False) -> Case:
        return Case(f"add {name}", "broadcast_add", summands=summands, hard=hard)

    found += [
        add("4d", ((1, 1, 3, 64), BF16), ((1, 9, 3, 64), BF16)),
        add("4d turned", ((1, 9, 3, 33), FP16), ((1, 1, 3, 33), FP16)),
        add("rows and columns", ((5, 1, 40), FP32), ((1, 7, 40), FP32)),
        add("alternating", ((2, 3, 1, 5, 16), BF16), ((2, 1, 4, 5, 16), BF16)),  # four axes: two launches
        add("alternating twice", ((2, 1, 3, 1, 2, 16), FP32), ((1, 3, 3, 2, 1, 16), FP32)),
        add("alternating promoted", ((3, 1, 2, 1, 33), BF16), ((1, 2, 1, 4, 33), FP32)),
        add("promoted", ((2, 6, 64), BF16), ((2, 6, 64), FP32)),
        add("column", ((2, 6, 1), FP32), ((2, 6, 24), FP32)),
        add("vectors", ((129,), BF16), ((129,), BF16)),
        add("hard", ((4, 1, 64), BF16), ((4, 8, 64), BF16), hard=True),
        add("empty", ((0, 1, 8), BF16), ((1, 5, 8), BF16)),
    ]  # fmt: skip
    return found


def flat_cases() -> list[Case]:
    """Return dense tokens for each kernel that treats them as one run: all dtypes, and widths whose vectors start at
    every channel, with a remainder behind the last whole vector."""
    kinds = ["row", "token", "token chunk"]
    found = []
    for dtype, name in ((BF16, "bf16"), (FP16, "fp16"), (FP32, "fp32")):
        for width in (64, 33):
            found += [
                Case(f"flat {name} {width} {layout}", dtype=dtype, batch=1, width=width, scale=(layout, dtype),
                     shift=(layout, dtype), hard=width == 33)
                for layout in kinds
            ]  # fmt: skip
            found += [
                Case(f"flat {name} {width} gate", "residual_gate", dtype=dtype, batch=1, width=width, hard=True,
                     scale=("row", dtype)),
                Case(f"flat {name} {width} added row", "broadcast_add",
                     summands=(((6, width), dtype), ((width,), dtype))),
                Case(f"flat {name} {width} added", "broadcast_add", summands=(((6, width), dtype),) * 2),
            ]  # fmt: skip
    for width in (64, 33):
        for layout in ("row", "token chunk"):
            more: dict[str, Any] = {"batch": 1, "width": width, "scale": (layout, FP32)}
            found += [
                Case(f"flat fp32 {layout} {width}", shift=(layout, FP32), **more),
                Case(f"flat fp32 {layout} gate {width}", "residual_gate", **more),
                Case(f"flat fp16 by fp32 {layout} {width}", dtype=FP16, shift=(layout, FP32), **more),
                Case(f"flat fp16 by fp32 {layout} gate {width}", "residual_gate", dtype=FP16, **more),
                Case(f"flat wide residual {layout} {width}", "residual_gate", residual=FP32, **more),
            ]
    found += [
        Case("flat wide residual own row", "residual_gate", residual=FP32, batch=1, scale=("row", BF16)),
        Case("flat rows off by three", batch=1, scale=("off by three", BF16), shift=("off by three", BF16)),
        Case("flat float rows off by three", batch=1, scale=("off by three", FP32), shift=("off by three", FP32)),
        Case("flat batches", width=136, batch=3, scale=("row", BF16), shift=("token", BF16)),
        Case("flat ragged batches", width=20, batch=3, tokens=6, scale=("row", BF16), shift=("row", BF16)),
        Case("flat constant of fp16", dtype=FP16, batch=1, scale=("row", FP16), shift=("row", FP16), constant=-2.5),
        Case("flat many ragged tokens", batch=1, tokens=301, width=13, scale=("row", BF16), shift=("token", BF16)),
    ]
    found += [Case(f"flat width {w}", batch=1, tokens=5, width=w, scale=("row", BF16)) for w in (*range(9, 18), 1030)]
    return found


CASES = {case.name: case for case in cases()}
# Cases that only the CUDA kernels distinguish.
CUDA_CASES = CASES | {case.name: case for case in flat_cases()}
# Covered by other cases too, or by the emulation: a build and a launch there take longer than here.
_ALIKE = {
    "one modulation", "single modulation", "batch modulation", "tokens of one modulation", "frame of one modulation",
    "expanded modulation", "frame and channel", "per token and shared", "fp16 by fp32", "one token", "single tokens",
    "no tokens", "width 3", "width 33", "width 1023", "channel gate", "batch gate", "chunk gate", "column gate",
    "gate flat", "gate no batch", "add vectors", "add empty",
}  # fmt: skip
ON_A_GPU = [name for name in CASES if name not in _ALIKE]


def as_a_gpu_rounds(case: Case, tensors: list[Tensor]) -> Tensor:
    """Compute the eager chain with the rounding of torch's GPU kernels: the constant is float32, and a number without
    an axis is rounded to the dtype of the other operand first. Otherwise it is the chain."""

    def cast(number: Tensor, dtype: torch.dtype) -> Tensor:
        return number.to(dtype) if number.ndim == 0 else number

    if case.op == "broadcast_add":
        return tensors[0] + tensors[1]
    if case.op == "residual_gate":
        residual, update, gate = tensors
        return (residual + update * over_tokens(cast(gate, update.dtype), update)).to(residual.dtype)
    x, scale, shift = tensors
    gain = (scale.float() + torch.tensor(case.constant, dtype=FP32)).to(scale.dtype)
    product = x * over_tokens(cast(gain, x.dtype), x)
    return (product + over_tokens(cast(shift, product.dtype), x)).to(x.dtype)


def differing(own: Tensor, expected: Tensor) -> int:
    """Return the elements whose bits differ, including zeros of different sign. All NaNs count as equal."""
    own, expected = own.cpu(), expected.cpu()
    bits = [torch.where(t.isnan(), 0, t.view(BITS[t.dtype])) for t in (own, expected)]
    return int(((bits[0] != bits[1]) | (own.isnan() != expected.isnan())).sum())


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    """Check the contract `exact`, on a GPU against the reference itself."""
    tensors = case.tensors(device)
    kept = [tensor.clone() for tensor in tensors]
    op = shipped_ops()[case.op]
    if device == "cpu":
        expected = as_a_gpu_rounds(case, tensors)
        if case.rounds_alike_on_a_cpu:
            eager = op.reference(*tensors, **case.scalars)
            assert isinstance(eager, Tensor) and not differing(expected, eager), f"{case.name}: not the chain"
    else:
        eager = op.reference(*tensors, **case.scalars)
        assert isinstance(eager, Tensor)
        expected = eager
    result = run(*tensors, **case.scalars)
    assert (result.shape, result.dtype, result.device) == (expected.shape, expected.dtype, expected.device)
    assert not (wrong := differing(result, expected)), f"{case.name}: {wrong} of {result.numel()} elements"
    for tensor, before in zip(tensors, kept, strict=True):
        assert not differing(tensor, before), "an input was changed"
