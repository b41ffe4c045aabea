"""Shared parts of cases for ops over tokens: drawing their tensors, and checking a call by the judge's own rule."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from kernwright.core.registry import shipped_ops
from kernwright.judge.numerics.contracts import ErrorFigures, Expected, compare
from kernwright.judge.numerics.correctness import FEW_ROWS, MIN_REDRAWS, NEAR_MISS_FACTOR
from kernwright.ops.catalog import dispatcher
from kernwright.tasks.task import Tolerance

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
TOLERANCES = {BF16: 0.05, FP16: 0.05, FP32: 1e-5}
How = tuple[str, torch.dtype]  # layout and dtype of a modulation

# Values of rows of equal elements: only the error of the mean is left of them, and it is magnified.
EQUAL_WIDTHS = (1, 7, 13, 64, 120, 257)
EQUAL_VALUES = (1017.0, 30011.0)


class Call(Protocol):
    @property
    def op(self) -> str: ...
    @property
    def scalars(self) -> dict[str, Any]: ...
    def tensors(self, device: str = "cpu") -> dict[str, Tensor | None]: ...


class Case(Call, Protocol):
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def offset(self) -> float: ...


class Drawing:
    """The tensors of one case, drawn on the CPU so that every device gets the same numbers."""

    def __init__(
        self, name: str, batch: int, tokens: int, width: int, frames: int, dtype: torch.dtype, *, device: str = "cpu",
        offset: float = 0.5, gaps: bool = False, flat: bool = False,
    ) -> None:  # fmt: skip
        """`gaps`: tokens have gaps, and batches follow each other in another order. `flat`: tokens are `[S, D]`."""
        self.batch, self.token_count, self.width, self.frames = batch, tokens, width, frames
        self.dtype, self.device, self.offset, self.gaps, self.flat = dtype, device, offset, gaps, flat
        self.generator = torch.Generator().manual_seed(sum(map(ord, name)))

    def draw(self, *sizes: int) -> Tensor:
        return torch.randn(sizes, generator=self.generator)

    def tokens(self) -> Tensor:
        def drawn(*sizes: int) -> Tensor:
            return (self.draw(*sizes) * 2 + self.offset).to(self.dtype).to(self.device)

        if self.flat:
            return drawn(self.token_count, self.width)
        if self.gaps:  # [S, B, D + 5], transposed and sliced
            return drawn(self.token_count, self.batch, self.width + 5).transpose(0, 1)[..., 2 : 2 + self.width]
        return drawn(self.batch, self.token_count, self.width)

    def modulation(self, how: How) -> Tensor:
        layout, dtype = how
        b, s, d = self.batch, self.token_count, self.width
        if layout == "expanded":
            return (self.draw(1) / 4).to(dtype).to(self.device).expand(d)
        if layout == "chunk":  # one of six chunks of a [B, 6 * D] projection, with rows far apart
            return self.modulation(("chunk rows", dtype))[:, None, :]
        if layout == "chunk rows":
            return (self.draw(b, 6 * d) / 4).to(dtype).to(self.device).chunk(6, dim=-1)[1]
        sizes: tuple[int, ...] = {
            "number": (), "one": (1,), "channel": (d,), "batch": (b, d), "row": (b, 1, d), "single": (1, 1, d),
            "token": (b, s, d), "tokens of one": (1, s, d), "frame": (b, self.frames, 1, d),
            "frame of one": (1, self.frames, 1, d), "column": (b, s, 1), "flat tokens": (s, d), "batch of one": (1, d),
            "numbers": (b, 1),
        }[layout]  # fmt: skip
        return (self.draw(*sizes) / 4).to(dtype).to(self.device)

    def affine(self, dtype: torch.dtype | None, around: float) -> Tensor | None:
        return None if dtype is None else (self.draw(self.width) / 4 + around).to(dtype).to(self.device)


def made_equal(given: dict[str, Tensor | None], value: float) -> None:
    """Make every row of x constant, and the tensors that are added to it or multiplied with it. Their sums are
    rounded."""
    for name, own in {"x": value, "residual": 0.37 * value, "gate": 0.5, "residual_gate": 0.5}.items():
        if (tensor := given.get(name)) is not None:
            tensor.fill_(own)


def hold_to_oracle(case: Call, run: Callable[..., Any]) -> None:
    """Compare with the exact result, rounded once, because the eager chain's error on equal elements is luck."""
    tensors, op = case.tensors(), shipped_ops()[case.op]
    result = run(*(tensors[parameter.name] for parameter in op.tensor_parameters), **case.scalars)
    results = (result,) if isinstance(result, Tensor) else tuple(result)
    for own, oracle in zip(results, op.oracle(tensors, case.scalars), strict=True):
        rounding = torch.finfo(own.dtype).eps / 2
        torch.testing.assert_close(own.double(), oracle.double(), atol=1e-5, rtol=rounding)


def hold(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    """Check a case as the judge checks a candidate for the contract `close`."""
    tensors = case.tensors(device)
    op = shipped_ops()[case.op]
    kept = {name: None if tensor is None else tensor.clone() for name, tensor in tensors.items()}
    oracles, eagers = op.oracle(tensors, case.scalars), op.call(tensors, case.scalars)
    result = run(*(tensors[parameter.name] for parameter in op.tensor_parameters), **case.scalars)
    results = (result,) if isinstance(result, Tensor) else tuple(result)
    assert len(results) == len(op.outputs)
    for name, own, oracle, eager in zip(op.outputs, results, oracles, eagers, strict=True):
        assert (own.shape, own.dtype, own.device) == (eager.shape, eager.dtype, eager.device), name
        limit = TOLERANCES[own.dtype] * (1000 if case.offset > 100 else 1)  # tolerance of a norm of such numbers
        if own.numel():
            expected = Expected.of(oracle.cpu(), eager.cpu())
            tolerance = Tolerance(atol=limit, rtol=limit)
            finding = compare(own.cpu(), expected, "close", tolerance)
            if finding.problem and finding.figures.max_error <= NEAR_MISS_FACTOR * expected.eager_max:
                finding = compare(own.cpu(), by_several_draws(case, name, expected, device), "close", tolerance)
            assert finding.problem is None, f"{case.name}: {name}: {finding.problem}"
    for name, tensor in tensors.items():
        assert tensor is None or torch.equal(tensor, kept[name]), f"{name} was changed"


def by_several_draws(case: Case, name: str, expected: Expected, device: str) -> Expected:
    """Return the expectation with the eager chain's largest error of several draws, as the judge does for a near miss.

    The largest error of a few hundred elements is mostly chance. So is the RMS error of a few rows, but not that of
    many.
    """
    op = shipped_ops()[case.op]
    for number in range(MIN_REDRAWS):
        tensors = replace(case, name=f"{case.name} {number}").tensors(device)  # type: ignore[type-var]
        both = op.oracle(tensors, case.scalars), op.call(tensors, case.scalars)
        oracle, eager = (results[list(op.outputs).index(name)] for results in both)
        drawn = Expected.of(oracle.cpu(), eager.cpu())
        rms = drawn.eager_rms if eager.numel() <= FEW_ROWS * eager.shape[-1] else 0.0
        expected = expected.widened_to(ErrorFigures(0.0, 0.0, drawn.eager_max, rms))
    return expected


def arguments(case: Case, device: str = "cpu") -> list[Tensor | None]:
    tensors = case.tensors(device)
    return [tensors[parameter.name] for parameter in shipped_ops()[case.op].tensor_parameters]


FAMILIES = (
    "norm_select",
    "norm_tanh",
    "ltx2_modulate",
    "ernie",
    "residual_norm",
)  # cases that are checked by the same contract


def every_case() -> list[tuple[str, str]]:
    return [(family, name) for family in FAMILIES for name in importlib.import_module(f"{family}_cases").CASES]


def fused(op: str) -> list[str]:
    """Return the backends with kernels of an op, best first."""
    return [backend for backend in dispatcher(op).backends if backend != "torch"]


def every_case_of_kernels() -> list[tuple[str, str, str]]:
    """Return every case of every backend. CUDA kernels have more variants, and therefore more cases."""
    found = []
    for family in FAMILIES:
        cases = importlib.import_module(f"{family}_cases")
        for name, case in getattr(cases, "CUDA_CASES", cases.CASES).items():
            backends = [own for own in fused(case.op) if own != "cuda" or getattr(case, "is_sum_of_two", True)]
            found += [(family, name, own) for own in backends if own == "cuda" or name in cases.CASES]
    return found
