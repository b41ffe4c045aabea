"""Contents on a GPU: a whole half's inputs in one draw, its oracle in few kernels, its outputs compared together."""

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

CHUNK_BYTES = 2**30  # of the widened inputs: the oracle's chain holds several tensors of that size at a time


@dataclass(frozen=True)
class StackedContents:
    """Numbered contents along the first axis, and what each call must give."""

    op: Op
    row: Workload
    inputs: dict[str, Tensor]
    expected: dict[str, Tensor]
    eager: EagerErrors
    _rooms: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def place(self, session: Any, slots: Sequence[int], first: int = 0) -> None:
        session.place({name: tensor[first : first + len(slots)] for name, tensor in self.inputs.items()}, slots)

    def problem(self, outputs: Any, first: int = 0, tolerances: Tolerances | None = None) -> str | None:
        for name, expected in self.expected.items():
            wanted = expected[first : first + outputs.calls]
            if tolerances is not None:
                room = self._room(name, first, outputs.calls)
                if problem := _beyond(outputs, name, wanted, tolerances[name], room):
                    return f"a timed block: {name} {problem}"
                continue
            for call in self._doubtful(name, outputs, wanted):
                if problem := self._closely(first + call, name, outputs.value(name, call)):
                    return f"call {first + call + 1} of a timed block: {problem}"
        return None

    def _doubtful(self, name: str, outputs: Any, wanted: Tensor) -> list[int]:
        """Calls whose output needs a closer look: most are as near as the eager chain itself."""
        if self.op.contract == "exact":
            if outputs.has_bytes(name, wanted):
                return []
            return [call for call in range(len(wanted)) if not same_bits(outputs.value(name, call), wanted[call])]
        bound = Bound.around(wanted, self.row_dtype(name), self.eager[name])
        furthest, rms = outputs.distances(name, bound.centre)
        close = (furthest <= bound.limits[0]) & (rms <= bound.limits[1])
        return [int(call) for call in (~close).nonzero().flatten().tolist()]

    def _room(self, name: str, first: int, calls: int) -> float:
        """Found once: the baseline and its twin are held against the same."""
        if (name, first, calls) not in self._rooms:
            wanted = self.expected[name][first : first + calls]
            self._rooms[name, first, calls] = (
                rounding_of_largest(wanted)
                if self.op.contract == "exact"
                else Bound.around(wanted, self.row_dtype(name), self.eager[name]).least_allowed
            )
        return self._rooms[name, first, calls]

    def row_dtype(self, name: str) -> torch.dtype:
        return getattr(torch, self.row.results(self.op.inplace)[name].torch_dtype_name)  # type: ignore[no-any-return]

    def _closely(self, number: int, name: str, value: Tensor) -> str | None:
        inputs = {own: tensor[number] for own, tensor in self.inputs.items()}
        return BlockExpectation.of(self.op, self.row, inputs, self.eager).problem({name: value})


def _beyond(outputs: Any, name: str, wanted: Tensor, tolerance: Tolerance, room: float) -> str | None:
    """One pass says where nothing is farther off than the absolute tolerance; the rest is looked at closely."""
    furthest, _ = outputs.distances(name, wanted)
    for call in (~(furthest <= max(tolerance.atol, room))).nonzero().flatten().tolist():
        if problem := tolerance_problem(outputs.value(name, call), wanted[call], tolerance, room):
            return problem
    return None


@dataclass
class CudaContentPool:
    """Contents drawn on the device, straight in the row's dtypes. One for each row."""

    generator: Generator
    _keeps_bits: bool | None = None  # whether the chain has the same bits over many calls as over each

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
            else _Together(op, row, block_oracle_precision(op, row))
        )
        return StackedContents(
            op=op, row=row, inputs=inputs, expected=_expected(oracle, inputs, count, chunk), eager=eager
        )

    def _eager(self, op: Op, row: Workload, inputs: dict[str, Tensor]) -> Oracle:
        """The chain itself. A number without an axis has one more among many calls, and may then promote what it meets:
        so two calls show once a row whether all of them can be computed together."""
        together, one_by_one = _Together(op, row, None), _OneByOne(op, row, None)
        if self._keeps_bits is None:
            some = {name: tensor[:2] for name, tensor in inputs.items()}
            batched, single = together(some), one_by_one(some)
            self._keeps_bits = all(
                batched[name].dtype == own.dtype and same_bits(batched[name], own) for name, own in single.items()
            )
        return together if self._keeps_bits else one_by_one

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
class _OneByOne:
    """The chain call by call."""

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
class _Together(_OneByOne):
    """The chain of many calls in one pass; one that cannot be batched goes call by call."""

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        names = list(inputs)
        scalars = self.op.scalar_defaults | self.row.scalars

        def chain(*tensors: Tensor) -> dict[str, Tensor]:
            return self.op.results(dict(zip(names, tensors, strict=True)), scalars, precision=self.precision)

        try:
            return torch.vmap(chain)(*inputs.values())
        except (RuntimeError, ValueError):
            return super().__call__(inputs)
