"""TuningTrial: configurations of one Triton kernel on one row. Each is checked against the reference, then timed.

Times are medians of rounds in which every configuration has its turn, by replay of a CUDA graph over as many sets of
inputs as exceed the cache several times. The fastest of many configurations may be fast by chance. So it is timed once
more against the default alone, and replaces the default only if it is faster by GAIN there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from kernwright.campaign.tuning.search import ListSearch
from kernwright.core.errors import KernwrightError
from kernwright.core.op import Op
from kernwright.judge.device.cuda.copying import CopyMethod, copy_methods, whole_pages
from kernwright.judge.numerics.contracts import Expected, compare
from kernwright.judge.numerics.inputs import draw_inputs
from kernwright.ops.catalog import dispatcher
from kernwright.runtime.call import Call
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.triton.configurations import Configuration, Situation
from kernwright.runtime.triton.tuning import Entry, trying
from kernwright.tasks.task import Task
from kernwright.tasks.tensor import ConcreteTensor
from kernwright.tasks.workload import Workload

GAIN = 0.02  # smaller gains are noise
ROUNDS, LAST_ROUNDS = 5, 11
CACHES, MOST_SETS = 3, 512  # input sets exceed the cache this many times, unless they are tiny
LEAST_SECONDS = 0.0015  # duration of one turn
Side = TypeVar("Side")


@dataclass(frozen=True)
class Work:
    """A situation, and the row on which it is measured."""

    situation: Situation
    task: Task
    row: Workload


@dataclass
class Outcome:
    """The result of a work: an entry, or the reason why there is none, and the configurations that failed, with
    reasons."""

    work: Work
    entry: Entry | None = None
    problem: str = ""
    failed: dict[Configuration, str] = field(default_factory=dict)


def triton_of(op: Op) -> Implementation | None:
    """Return the implementation to which configurations apply."""
    own = dispatcher(op.name).implementations
    return next((each for each in own if (each.backend, each.contract) == ("triton", op.contract)), None)


def placed(spec: ConcreteTensor, device: torch.device, values: Tensor | None = None) -> Tensor:
    """Return a tensor laid out as its row says, with strides and offset. Without values it has zeros, which every call
    accepts."""
    size = spec.offset + spec.span_bytes // spec.item_bytes
    base = torch.zeros(size, dtype=getattr(torch, spec.torch_dtype_name), device=device)
    if values is not None:
        # An expanded axis is stored once.
        once = [slice(0, 1) if stride == 0 else slice(None) for stride in spec.strides]
        sizes = [1 if stride == 0 else size for size, stride in zip(spec.shape, spec.strides, strict=True)]
        base.as_strided(sizes, spec.strides, spec.offset).copy_(values[tuple(once)])
    return base.as_strided(spec.shape, spec.strides, spec.offset)


def call_of(row: Workload, tensors: dict[str, Tensor]) -> Call:
    return Call.of(dispatcher(row.op).op, (), {**tensors, **row.scalars})


def blank_call(row: Workload, device: torch.device) -> Call:
    return call_of(row, {name: placed(spec, device) for name, spec in row.concrete_inputs().items()})


class TuningTrial:
    """The measurement of one work on one device."""

    def __init__(self, work: Work, device: torch.device) -> None:
        self.work, self.device, self.row = work, device, work.row
        self.op = work.task.op_of(work.row)
        own = triton_of(self.op)
        assert own is not None  # only works with a Triton implementation are made
        self._own = own
        generator = torch.Generator(device).manual_seed(0)

        def noise(spec: ConcreteTensor) -> Tensor:
            return torch.randn(spec.shape, generator=generator, device=device)

        drawn = draw_inputs(self.op, self.row, "normal", noise, generator)
        specs = self.row.concrete_inputs()
        self._drawn = {name: placed(specs[name], device, values) for name, values in drawn.items()}
        if why := own.refusal(call_of(self.row, self._drawn)):
            raise KernwrightError(f"{self.op.name} cannot run: {why}", "see kernwright explain")

    @cached_property
    def _expected(self) -> list[Expected]:
        own = {parameter.name: self._drawn.get(parameter.name) for parameter in self.op.tensor_parameters}
        pairs = zip(self.op.oracle(own, self.row.scalars), self.op.call(own, self.row.scalars), strict=True)
        return [Expected.of(oracle, eager) for oracle, eager in pairs]

    @cached_property
    def _sets(self) -> list[tuple[list[Any], dict[str, Any], tuple[Tensor, ...]]]:
        """Return tensors, scalars and outputs of enough calls to exceed the cache."""
        cache = torch.cuda.get_device_properties(self.device).L2_cache_size if self.device.type == "cuda" else 0
        moved = self.row.fewest_bytes()
        count = min(MOST_SETS, 1 + CACHES * cache // moved)
        specs = self.row.concrete_inputs()
        made = []
        for _ in range(count):
            own = {name: placed(specs[name], self.device, values) for name, values in self._drawn.items()}
            tensors, scalars = call_of(self.row, own).parts
            outputs = tuple(torch.empty_like(each.eager) for each in self._expected)
            made.append((tensors, scalars, outputs))
        return made

    def _call(self, given: tuple[list[Any], dict[str, Any], tuple[Tensor, ...]]) -> None:
        tensors, scalars, outputs = given
        self._own.function(*tensors, **scalars, out=outputs[0] if len(outputs) == 1 else outputs)

    def problem(self, configuration: Configuration) -> str | None:
        """Return what is wrong with a configuration's results, or None."""
        given = self._sets[0]
        for output in given[2]:
            output.fill_(float("nan"))  # so that unwritten elements show
        try:
            with trying(configuration):
                self._call(given)
        except Exception as error:  # any error of the compiler excludes this configuration only
            return f"{type(error).__name__}: {error}".splitlines()[0][:200]
        for name, output, expected in zip(self.op.outputs, given[2], self._expected, strict=True):
            tolerance = self.work.task.tolerance_for(self.row.outputs[name].dtype)
            if found := compare(output, expected, self._own.contract, tolerance).problem:
                return f"{name}: {found}"
        return None

    def clock(self, configuration: Configuration) -> Callable[[], float]:
        def body() -> None:
            for given in self._sets:
                self._call(given)

        with trying(configuration):
            own = clock(body, self.device)

        def seconds() -> float:
            with trying(configuration):  # the interpreter has no graphs
                return own() / len(self._sets)

        return seconds

    def copy_seconds(self) -> float:
        """Return the time of a copy that moves as many bytes as the row must."""
        count, size = len(self._sets), whole_pages(self.row.fewest_bytes())
        buffers = [torch.zeros(size, dtype=torch.uint8, device=self.device) for _ in range(count + 1)]

        def copying(way: CopyMethod) -> Callable[[], float]:
            def body() -> None:
                for source, to in zip(buffers[1:], buffers, strict=False):
                    way(to, source)

            return clock(body, self.device)

        found = medians({way.__name__: copying(way) for way in copy_methods(self.device.type)}, self._rounds(ROUNDS))
        return min(found.values()) / count

    def _rounds(self, wanted: int) -> int:
        return wanted if self.device.type == "cuda" else 1

    def run(self, candidates: Sequence[Configuration]) -> Outcome:
        default, outcome = self.work.situation.default, Outcome(self.work)
        clocks: dict[Configuration, Callable[[], float]] = {}
        for each in ListSearch(default, candidates):
            if why := self.problem(each):
                outcome.failed[each] = why
            else:
                clocks[each] = self.clock(each)
        if default not in clocks:
            outcome.problem = f"the default, {default}, failed: {outcome.failed[default]}"
            return outcome
        found = medians(clocks, self._rounds(ROUNDS))
        best = min(found, key=found.__getitem__)
        if best != default:
            found = medians({each: clocks[each] for each in (default, best)}, self._rounds(LAST_ROUNDS))
            if found[best] > (1 - GAIN) * found[default]:
                best = default
        situation, place = self.work.situation, f"{self.work.task.name}/{self.row.id}"
        outcome.entry = Entry(
            op=situation.op, width=situation.width, element_bytes=situation.element_bytes,
            tokens="few" if situation.is_few else "many",
            rows=best.rows, block=best.block, warps=best.warps,
            us=_us(found[best]), default_us=_us(found[default]), copy_us=_us(self.copy_seconds()), measured_on=place,
        )  # fmt: skip
        return outcome


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)


def clock(body: Callable[[], None], device: torch.device) -> Callable[[], float]:
    """Return a function that measures the seconds of one run. On a GPU it replays a graph, often enough for the
    clock."""
    if device.type != "cuda":

        def once() -> float:
            start = time.perf_counter()
            body()
            return time.perf_counter() - start

        return once

    with torch.cuda.device(device):
        body()  # compiles and loads the kernel before the capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def replayed(times: int) -> float:
        with torch.cuda.device(device):
            start.record()
            for _ in range(times):
                graph.replay()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / times

    replayed(1)
    times = max(1, int(LEAST_SECONDS / max(replayed(1), 1e-7)))
    return lambda: replayed(times)


def medians(clocks: dict[Side, Callable[[], float]], rounds: int) -> dict[Side, float]:
    """Return the median of each side. All sides take a turn in every round, so that drift affects all of them."""
    found: dict[Side, list[float]] = {side: [] for side in clocks}
    for _ in range(rounds):
        for side, own in clocks.items():
            found[side].append(own())
    return {side: statistics.median(values) for side, values in found.items()}
