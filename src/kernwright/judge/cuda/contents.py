"""Contents on a GPU: a whole half's inputs in one draw, its oracle in few kernels, its outputs compared together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from kernwright.judge.contents import EagerErrors
from kernwright.judge.contract import same_bits
from kernwright.judge.inputs import MODULATION_SPREAD, Inputs, draw_inputs, whole_numbers
from kernwright.judge.watch import Bound, first_problem, watching_precision
from kernwright.ops.definition import Op
from kernwright.tasks.tensor import ConcreteTensor
from kernwright.tasks.workload import Workload

CHUNK_BYTES = 2**30  # of the widened inputs: the oracle's chain holds several tensors of that size at a time


@dataclass(frozen=True)
class StackedContents:
    """Numbered contents along the first axis, and what each call must give."""

    op: Op
    inputs: dict[str, Tensor]
    expected: dict[str, Tensor]
    dtypes: dict[str, torch.dtype]
    eager: EagerErrors
    chunk: int

    def place(self, session: Any, slots: Sequence[int], numbers: Sequence[int]) -> None:
        session.place(self.inputs, slots, numbers)

    def problem(self, numbers: Sequence[int], outputs: Any) -> str | None:
        """In the order of the contents, so that a chunk of them is one slice of the oracle."""
        calls = sorted(range(len(numbers)), key=lambda call: numbers[call])
        for name, expected in self.expected.items():
            for start in range(0, len(calls), self.chunk):
                some = calls[start : start + self.chunk]
                first, last = numbers[some[0]], numbers[some[-1]]
                contiguous = last - first == len(some) - 1
                wanted = expected[first : last + 1] if contiguous else expected[[numbers[call] for call in some]]
                if found := self._first(name, outputs.stacked(name, some), wanted):
                    return f"call {some[found[0]] + 1} of a timed block: {name} {found[1]}"
        return None

    def _first(self, name: str, values: Tensor, wanted: Tensor) -> tuple[int, str] | None:
        if self.op.contract == "exact":
            wrong = (i for i in range(len(values)) if not same_bits(values[i], wanted[i]))
            return None if (first := next(wrong, None)) is None else (first, "differs in its bits from the eager chain")
        return first_problem(values, Bound(wanted, self.dtypes[name], self.eager[name]))


@dataclass
class CudaContentPool:
    """Contents drawn on the device, straight in the row's dtypes."""

    generator: Generator

    @classmethod
    def seeded(cls, seed: int, device: int) -> CudaContentPool:
        return cls(Generator(device=f"cuda:{device}").manual_seed(seed))

    def draw(self, op: Op, row: Workload, distribution: str = "normal") -> Inputs:
        return draw_inputs(op, row, distribution, self._noise, self.generator)

    def _noise(self, tensor: ConcreteTensor) -> Tensor:
        return torch.randn(tensor.shape, generator=self.generator, device=self.generator.device)

    def contents(self, op: Op, row: Workload, count: int, eager: EagerErrors) -> StackedContents:
        inputs = {name: self._stack(op, name, tensor, count) for name, tensor in row.concrete_inputs().items()}
        dtypes = {n: getattr(torch, spec.torch_dtype_name) for n, spec in row.results(op.inplace).items()}
        widened = 8 * sum(t.elements for t in (row.concrete_inputs() | row.concrete_outputs()).values())
        chunk = max(1, min(count, CHUNK_BYTES // max(1, widened)))
        return StackedContents(op, inputs, _expected(op, row, inputs, count, chunk), dtypes, eager, chunk)

    def _stack(self, op: Op, name: str, tensor: ConcreteTensor, count: int) -> Tensor:
        dtype = getattr(torch, tensor.torch_dtype_name)
        shape = (count, *tensor.shape)
        if not dtype.is_floating_point:
            return whole_numbers(shape, dtype, self.generator)
        noise = torch.randn(shape, generator=self.generator, device=self.generator.device, dtype=dtype)
        return noise if name in op.activations else noise.mul_(MODULATION_SPREAD)


def _expected(op: Op, row: Workload, inputs: dict[str, Tensor], count: int, chunk: int) -> dict[str, Tensor]:
    parts = list(_chunks(op, row, inputs, count, chunk))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _chunks(op: Op, row: Workload, inputs: dict[str, Tensor], count: int, chunk: int) -> Iterator[dict[str, Tensor]]:
    for start in range(0, count, chunk):
        some = {name: tensor[start : start + chunk] for name, tensor in inputs.items()}
        yield _together(op, row, some) if op.contract != "exact" else _one_by_one(op, row, some)


def _together(op: Op, row: Workload, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The oracle of a chunk in one pass. A chain that cannot be batched is run call by call."""
    names = list(inputs)
    scalars = op.scalar_defaults | row.scalars
    precision = watching_precision(op, row)

    def oracle(*tensors: Tensor) -> dict[str, Tensor]:
        return op.results(dict(zip(names, tensors, strict=True)), scalars, precision=precision)

    try:
        return torch.vmap(oracle)(*inputs.values())
    except (RuntimeError, ValueError):
        return _one_by_one(op, row, inputs, precision)


def _one_by_one(
    op: Op, row: Workload, inputs: dict[str, Tensor], precision: torch.dtype | None = None
) -> dict[str, Tensor]:
    scalars = op.scalar_defaults | row.scalars
    count = len(next(iter(inputs.values())))
    results = [op.results({n: t[i] for n, t in inputs.items()}, scalars, precision=precision) for i in range(count)]
    return {name: torch.stack([result[name] for result in results]) for name in results[0]}
