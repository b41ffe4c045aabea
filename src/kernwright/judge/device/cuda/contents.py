"""Contents on a GPU: inputs and oracles for all calls of a half-quad at once, and one comparison of all outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor

from kernwright.core.op import Op
from kernwright.judge.numerics.contents import EagerErrors
from kernwright.judge.numerics.contracts import same_bits
from kernwright.judge.numerics.expectations import (
    BlockExpectation,
    Bound,
    Tolerances,
    block_oracle_precision,
    rounding_of_largest,
    tolerance_problem,
)
from kernwright.judge.numerics.inputs import MODULATION_SPREAD, Inputs, draw_inputs, draw_integers
from kernwright.tasks.task import Tolerance
from kernwright.tasks.tensor import ConcreteTensor
from kernwright.tasks.workload import Workload

CHUNK_BYTES = 2**30  # size of widened inputs per chunk; the oracle holds several tensors of this size at a time


@dataclass(frozen=True, kw_only=True)
class StackedContents:
    """Contents of all calls, stacked along the first axis, with the expected outputs."""

    op: Op
    row: Workload
    inputs: dict[str, Tensor]
    expected: dict[str, Tensor]
    eager: EagerErrors
    _least_allowed: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def place(self, session: Any, slots: Sequence[int], first: int = 0) -> None:
        session.place({name: tensor[first : first + len(slots)] for name, tensor in self.inputs.items()}, slots)

    def problem(self, outputs: Any, first: int = 0, tolerances: Tolerances | None = None) -> str | None:
        for name, stacked in self.expected.items():
            expected = stacked[first : first + outputs.calls]
            if tolerances is not None:
                least_allowed = self._least_allowed_error(name, first, outputs.calls)
                if problem := _tolerance_problem(outputs, name, expected, tolerances[name], least_allowed):
                    return f"a timed block: {name} {problem}"
                continue
            for call in self._suspect_calls(name, outputs, expected):
                if problem := self._check_call(first + call, name, outputs.value(name, call)):
                    return f"call {first + call + 1} of a timed block: {problem}"
        return None

    def _suspect_calls(self, name: str, outputs: Any, expected: Tensor) -> list[int]:
        """Return the calls whose output must be checked by itself. Most outputs are within the eager chain's error."""
        if self.op.contract == "exact":
            if outputs.has_bytes(name, expected):
                return []
            return [call for call in range(len(expected)) if not same_bits(outputs.value(name, call), expected[call])]
        bound = Bound.around(expected, self.row_dtype(name), self.eager[name])
        max_error, rms = outputs.distances(name, bound.centre)
        close = (max_error <= bound.limits[0]) & (rms <= bound.limits[1])
        return [int(call) for call in (~close).nonzero().flatten().tolist()]

    def _least_allowed_error(self, name: str, first: int, calls: int) -> float:
        """Return the error that is allowed beyond a tolerance. It is cached for the baseline and its twin."""
        if (name, first, calls) not in self._least_allowed:
            expected = self.expected[name][first : first + calls]
            self._least_allowed[name, first, calls] = (
                rounding_of_largest(expected)
                if self.op.contract == "exact"
                else Bound.around(expected, self.row_dtype(name), self.eager[name]).least_allowed
            )
        return self._least_allowed[name, first, calls]

    def row_dtype(self, name: str) -> torch.dtype:
        return getattr(torch, self.row.results(self.op.inplace)[name].torch_dtype_name)  # type: ignore[no-any-return]

    def _check_call(self, number: int, name: str, value: Tensor) -> str | None:
        inputs = {input_name: tensor[number] for input_name, tensor in self.inputs.items()}
        return BlockExpectation.of(self.op, self.row, inputs, self.eager).problem({name: value})


def _tolerance_problem(
    outputs: Any, name: str, expected: Tensor, tolerance: Tolerance, least_allowed: float
) -> str | None:
    """Compare all calls with the absolute tolerance in one pass, then the calls that exceed it one by one."""
    max_error, _ = outputs.distances(name, expected)
    for call in (~(max_error <= max(tolerance.atol, least_allowed))).nonzero().flatten().tolist():
        if problem := tolerance_problem(outputs.value(name, call), expected[call], tolerance, least_allowed):
            return problem
    return None


@dataclass
class CudaContentPool:
    """The source of contents for one row, drawn on the device in the row's dtypes."""

    generator: Generator
    _batches_exactly: bool | None = None  # True if the batched chain gives the same bits as single calls

    @classmethod
    def seeded(cls, seed: int, device: int) -> CudaContentPool:
        return cls(Generator(device=f"cuda:{device}").manual_seed(seed))

    def draw(self, op: Op, row: Workload, distribution: str = "normal") -> Inputs:
        return draw_inputs(op, row, distribution, self._noise, self.generator)

    def _noise(self, tensor: ConcreteTensor) -> Tensor:
        return torch.randn(tensor.shape, generator=self.generator, device=self.generator.device)

    def contents(self, op: Op, row: Workload, count: int, eager: EagerErrors) -> StackedContents:
        inputs = {name: self._stack(op, row, name, tensor, count) for name, tensor in row.concrete_inputs().items()}
        widened = 8 * sum(t.elements for t in (row.concrete_inputs() | row.concrete_outputs()).values())
        chunk = max(1, min(count, CHUNK_BYTES // max(1, widened)))
        oracle = (
            self._eager(op, row, inputs)
            if op.contract == "exact"
            else _BatchedOracle(op, row, block_oracle_precision(op, row))
        )
        expected = _expected(oracle, inputs, count, chunk)
        return StackedContents(op=op, row=row, inputs=inputs, expected=expected, eager=eager)

    def _eager(self, op: Op, row: Workload, inputs: dict[str, Tensor]) -> Oracle:
        """Return the eager chain, batched if two calls show that batching does not change its bits.

        Batching adds an axis to scalar tensors, which can change the type promotion.
        """
        batched, sequential = _BatchedOracle(op, row, None), _SequentialOracle(op, row, None)
        if self._batches_exactly is None:
            two_calls = {name: tensor[:2] for name, tensor in inputs.items()}
            from_batch, expected = batched(two_calls), sequential(two_calls)
            self._batches_exactly = all(
                from_batch[name].dtype == value.dtype and same_bits(from_batch[name], value)
                for name, value in expected.items()
            )
        return batched if self._batches_exactly else sequential

    def _stack(self, op: Op, row: Workload, name: str, tensor: ConcreteTensor, count: int) -> Tensor:
        dtype = getattr(torch, tensor.torch_dtype_name)
        if not dtype.is_floating_point:
            return draw_integers(op, row, name, self.generator, (count,))
        noise = torch.randn((count, *tensor.shape), generator=self.generator, device=self.generator.device, dtype=dtype)
        return noise if name in op.activations else noise.mul_(MODULATION_SPREAD)


Oracle = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def _expected(oracle: Oracle, inputs: dict[str, Tensor], count: int, chunk: int) -> dict[str, Tensor]:
    expected: dict[str, Tensor] = {}
    for start in range(0, count, chunk):
        for name, part in oracle({name: tensor[start : start + chunk] for name, tensor in inputs.items()}).items():
            if name not in expected:
                expected[name] = torch.empty((count, *part.shape[1:]), dtype=part.dtype, device=part.device)
            expected[name][start : start + chunk] = part
    return expected


@dataclass(frozen=True)
class _SequentialOracle:
    """The op's chain, computed call by call."""

    op: Op
    row: Workload
    precision: torch.dtype | None

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        scalars = self.op.scalar_defaults | self.row.scalars
        count = len(next(iter(inputs.values())))
        results = [
            self.op.results({n: t[i] for n, t in inputs.items()}, scalars, precision=self.precision)
            for i in range(count)
        ]
        return {name: torch.stack([result[name] for result in results]) for name in results[0]}


@dataclass(frozen=True)
class _BatchedOracle(_SequentialOracle):
    """The op's chain for all calls in one pass; call by call if `torch.vmap` does not support the chain."""

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        names = list(inputs)
        scalars = self.op.scalar_defaults | self.row.scalars

        def chain(*tensors: Tensor) -> dict[str, Tensor]:
            return self.op.results(dict(zip(names, tensors, strict=True)), scalars, precision=self.precision)

        try:
            return torch.vmap(chain)(*inputs.values())
        except (RuntimeError, ValueError):
            return super().__call__(inputs)
