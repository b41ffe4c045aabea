"""Session: one row open in one worker. The judge fills the row's slots in an arena, reads outputs and checks damage."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from operator import add, gt
from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.judge.numerics.contents import PlaceableContents
from kernwright.judge.numerics.inputs import Inputs
from kernwright.judge.process.block import Block
from kernwright.judge.process.faults import WorkerCheated, WorkerFault
from kernwright.judge.process.worker_process import BUILD_DEADLINE_S, WorkerProcess
from kernwright.judge.protocol.layout import SlotLayout, lay_out, slot_bytes
from kernwright.judge.protocol.messages import (
    MOST_KERNELS,
    Census,
    CensusSource,
    Check,
    ChosenImplementation,
    Done,
    Events,
    EventTime,
    Explain,
    LaunchedKernels,
    LoopAnswer,
    OpenLoop,
    OpenRow,
    OutputPointers,
    Prepare,
)
from kernwright.judge.protocol.orders import RowSignature
from kernwright.judge.record.verdict import Kernel, RanImplementation
from kernwright.judge.session.arena import Arena
from kernwright.judge.session.retained_outputs import RetainedOutput, RetainedOutputs
from kernwright.tasks.candidate import Style
from kernwright.tasks.policy import Metric
from kernwright.tasks.workload import Workload

Outputs = dict[str, Tensor]
MAX_REFUSAL_LENGTH = 300  # characters of the reason why an implementation refused a call
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class WrongBehaviour(WorkerFault):
    """A call broke a rule of the op: it wrote outside its outputs, or returned memory that was still in use."""


class DeviceBusy(Exception):
    """The device executes work although every worker is stopped."""


class DeviceSlowed(DeviceBusy):
    """The device's memory is slower than before although every worker is stopped."""


class OutputsMoved(Exception):
    """The outputs of a block were not at the expected addresses, so they were copied after the clock had stopped.

    The time of the block does not count, but its outputs must be correct.
    """

    side: Any = None
    first: int = 0  # the index of the block's first call among the calls that contents were placed for

    def __init__(self, block: Block, outputs: Any) -> None:
        self.block, self.outputs = block, outputs
        super().__init__("outputs are not at the expected addresses")


def bytes_per_slot(row: Workload, style: Style) -> int:
    tensors = row.concrete_inputs() | (row.concrete_outputs() if style == "writes" else {})
    return slot_bytes(tensors)


def bytes_of_outputs(row: Workload) -> int:
    return sum(spec.span_bytes for spec in row.concrete_outputs().values())


class Session:
    """One row open in one worker: fill slots, run calls, read outputs. The judge reads only from a stopped worker."""

    block_deadline_s = 120.0
    outputs_may_move = False  # True if the judge must know the addresses of a block's outputs in advance
    loop_takes_all_slots = False  # True if a block of `device` always runs every slot, in a fixed order
    wall_calls = 4  # calls per block of `wall`
    tells_events = False  # True if the worker can report the time of a block by device events
    compares_retained = True  # False for trusted sides, whose retained outputs need no comparison
    long_run_slots, long_run_bytes = 24, 2**24  # limits for a long run: drawing contents takes longer than calls
    release_ns = 0  # processor time that the worker last needed to free outputs
    protocol_drifts = False  # True if the protocol's overhead must be measured again for every quad of `wall`

    def __init__(self, worker: WorkerProcess, op: Op, row: Workload, style: Style, slots: int) -> None:
        self.worker, self.op, self.row, self.style = worker, op, row, style
        self.output_specs = row.concrete_outputs()
        tensors = row.concrete_inputs() | (self.output_specs if style == "writes" else {})
        self.arena = self._make_arena(lay_out(tensors, slots))
        self._contents: dict[int, Inputs] = {}
        self._image: Tensor | None = None
        self._metric: Metric | None = None
        returned = [spec.span_bytes for spec in self.output_specs.values()] if style == "returns" else []
        self._retained = RetainedOutputs(slots, returned)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _make_arena(self, layout: SlotLayout) -> Arena:
        return Arena.create(layout)

    def _open(self) -> None:
        names = [parameter.name for parameter in self.op.tensor_parameters]
        wanted = [*names, *(self.output_specs if self.style == "writes" else ())]
        layout = self.arena.layout
        signature = RowSignature(
            inputs=tuple(names),
            outputs=tuple(self.output_specs.values()),
            scalars=self.op.scalar_defaults | self.row.scalars,
            style=self.style,
        )
        message = OpenRow(
            bytes=layout.size,
            slots=layout.count,
            pitch=layout.pitch,
            plan=tuple(layout.plan[name].as_message() if name in layout.plan else None for name in wanted),
            row=signature,
            changes_inputs=bool(self.changed_inputs),
        )
        self.worker.request(message, Done, BUILD_DEADLINE_S, (self.arena.descriptor,))

    @property
    def slots(self) -> int:
        return self.arena.layout.count

    @property
    def changed_inputs(self) -> list[str]:
        return [name for name in self.op.inplace if name in self.arena.layout.plan]

    def fill(self, slot: int, contents: Inputs) -> None:
        """Write contents into a slot and poison its outputs, while the worker is stopped."""
        for name, content in contents.items():
            self.arena.tensor(slot, name).copy_(content)
        if self.style == "writes":
            for name in self.output_specs:
                self.arena.poison(slot, name)
        self._contents[slot] = contents

    def fill_all(self, contents: Inputs) -> None:
        """Write the same contents into every slot, for the warm-up."""
        for slot in range(self.slots):
            self.fill(slot, contents)

    def open_loop(self) -> str | None:
        """Let the worker build the loop without Python that `device` is timed with. Return the reason if it cannot.

        The loop returns the same outputs every time by design, and calls in a graph share temporary memory. So no
        outputs are retained from now on.
        """
        self.end_retention()
        reason = self.worker.request(OpenLoop(), LoopAnswer, BUILD_DEADLINE_S).unavailable
        return None if reason is None else reason[:300]

    def prepare(self) -> None:
        """Discard the contents of all slots before they are filled again. The worker frees all but retained outputs."""
        hold = self._retained.choose(self._outputs_at if self.compares_retained else _no_outputs)
        self._refuse_overwritten()
        self.worker.request(Prepare(hold=tuple(hold)), Done, 60.0)
        self.release_ns = self.worker.request_ns
        if self.style == "writes":
            for slot in self._contents:
                for name in self.output_specs:
                    self.arena.poison(slot, name)
        self._contents.clear()

    def end_retention(self) -> None:
        """Check the retained outputs a last time, and retain none from now on."""
        self._retained.end()
        self._refuse_overwritten()

    def save_image(self) -> None:
        """Copy the whole arena before a block if no call may change it."""
        if self.style == "returns" and not self.op.inplace:
            self._image = self.arena.bytes.clone()

    def begin(self, metric: Metric) -> None:
        """Begin blocks of this metric.

        Outputs of another metric are dropped: those of a block of hundreds of calls are at addresses that a single call
        never uses.
        """
        if metric != self._metric:
            self._metric = metric
            self._retained.expire()

    def ready(self) -> None:
        """Prepare the device right before the clock starts."""

    def finish_writes(self) -> None:
        """Wait until everything that the judge wrote has arrived, before a block that is not timed."""

    def check_call(self, slot: int, deadline_s: float) -> Outputs:
        """Run a single untimed call, check every rule and return its outputs."""
        pointers = self.worker.request(Check(slot=slot), OutputPointers, deadline_s).pointers
        self.worker.calls += 1
        outputs = self.snapshot([slot], pointers)[0]
        self.refuse_damage([slot])
        return outputs

    def event_ns(self) -> int:
        """Return the time of the last block by device events, as reported by the worker; for trusted sides only."""
        return self.worker.request(Events(), EventTime, 60.0).ns

    def census(self, source: CensusSource = "profiler", slot: int = 0) -> list[Kernel]:
        """Return the kernels that a call launches, as reported by the worker. Verdicts do not depend on it.

        From a graph the census is faster, if the call can be captured.
        """
        answer = self.worker.request(Census(slot=slot, source=source), LaunchedKernels, BUILD_DEADLINE_S)
        try:
            return [
                Kernel(name=kernel.name, stream=kernel.stream, count=kernel.count)
                for kernel in answer.kernels[:MOST_KERNELS]
            ]
        except ValueError:
            raise WorkerCheated("answered the census with a kernel name of more than 300 characters") from None

    def implementation(self, slot: int = 0) -> RanImplementation:
        """Return the implementation that a shipped op runs on a slot, as reported by the worker."""
        answer = self.worker.request(Explain(slot=slot), ChosenImplementation, BUILD_DEADLINE_S)
        refused = tuple(reason[:MAX_REFUSAL_LENGTH] for reason in answer.refused)
        try:
            return RanImplementation(backend=answer.backend, contract=answer.contract, refused=refused)
        except ValueError:
            raise WorkerCheated("named an implementation that no shipped op has") from None

    def run_single_calls(self, contents: PlaceableContents, slots: Sequence[int]) -> Iterator[tuple[int, Block, Any]]:
        """Run blocks of `wall`: single calls, each on contents that are written after the previous call has ended.

        Yield the index of the block's first call, the block, and its outputs.
        """
        for number, slot in enumerate(slots):
            contents.place(self, [slot], number)
            self.ready()
            try:
                block, outputs = self.run([slot])
            except OutputsMoved as moved:
                moved.first = number
                raise
            yield number, block, outputs

    def run_empty_blocks(self, repeats: int) -> list[Block]:
        """Run blocks without calls, which measure the overhead of the protocol."""
        self.prepare()
        blocks = []
        for _ in range(repeats):
            self.ready()
            blocks.append(self.run([], with_python=self._metric != "device")[0])
        return blocks

    def run(self, order: Sequence[int], *, with_python: bool = True) -> tuple[Block, Any]:
        """Run one timed block. Return the block and its outputs, which the placed contents can check."""
        block = self.worker.run_block(order, len(self.output_specs), self.block_deadline_s, with_python)
        outputs = self.snapshot(order, block.pointers)
        self.refuse_damage(order)
        self._forget_changed(order)
        return block, outputs

    def _forget_changed(self, order: Sequence[int]) -> None:
        """Forget the contents of slots whose inputs the calls changed in place, so that they are not compared again."""
        if self.changed_inputs:
            for slot in order:
                self._contents.pop(slot, None)

    def outputs_of(self, block_outputs: Any, call: int) -> Outputs:
        """Return the outputs of one call of a block."""
        outputs: Outputs = block_outputs[call]
        return outputs

    def snapshot(self, order: Sequence[int], pointers: Sequence[int]) -> list[Outputs]:
        """Return copies of the block's outputs in the order of its calls, including inputs changed in place."""
        copies = self._written(order) if self.style == "writes" else self._returned(order, pointers)
        for slot, outputs in zip(order, copies, strict=True):
            outputs |= {name: self.arena.tensor(slot, name).clone() for name in self.changed_inputs}
        return copies

    def _written(self, order: Sequence[int]) -> list[Outputs]:
        return [{name: self.arena.tensor(slot, name).clone() for name in self.output_specs} for slot in order]

    def _returned(self, order: Sequence[int], pointers: Sequence[int]) -> list[Outputs]:
        self._refuse_shared_memory(order, pointers)
        outputs = len(self.output_specs)
        return [self._outputs_at(pointers[call * outputs : (call + 1) * outputs]) for call in range(len(order))]

    def _outputs_at(self, pointers: Sequence[int]) -> Outputs:
        """Return copies of one call's outputs."""
        outputs: Outputs = {}
        for pointer, (name, spec) in zip(pointers, self.output_specs.items(), strict=True):
            copy = torch.empty(spec.span_bytes // spec.item_bytes, dtype=getattr(torch, spec.torch_dtype_name))
            if copy.numel():
                self.worker.memory.read(pointer, copy)
            outputs[name] = copy.as_strided(spec.shape, spec.strides)
        return outputs

    def _refuse_shared_memory(self, order: Sequence[int], pointers: Sequence[int]) -> None:
        """Refuse outputs that share memory with inputs or with outputs of other calls."""
        sizes = [spec.span_bytes for spec in self.output_specs.values()]
        if len(pointers) != len(order) * len(sizes):
            raise WorkerCheated(f"returned {len(pointers)} outputs, {len(order) * len(sizes)} were expected")
        # A block has hundreds of outputs, so the comparison of neighbours runs without a Python loop.
        spans = sorted(zip(pointers, map(add, pointers, cycle(sizes)), strict=False))
        starts, ends = (start for start, _ in spans), (end for _, end in spans)
        if any(map(gt, ends, islice(starts, 1, None))):
            raise WrongBehaviour("two calls returned the same memory: outputs must not be reused or cached")
        if self._retained.overlaps(spans):
            raise WrongBehaviour("a later call returned the memory of an output that its caller still holds")
        self._refuse_aliases(spans)
        self._retained.note(pointers)

    def _refuse_overwritten(self) -> None:
        if not self._are_unchanged(self._retained.dropped):
            raise WrongBehaviour("later calls overwrote an output that its caller still holds")

    def _are_unchanged(self, retained: Sequence[RetainedOutput]) -> bool:
        return all(
            same_bytes(found, output.values[name])
            for output in retained
            if output.values
            for name, found in self._outputs_at(output.pointers).items()
        )

    def _refuse_aliases(self, spans: Sequence[tuple[int, int]]) -> None:
        for low, high in self._arena_mappings():
            if any(start < high and end > low for start, end in spans):
                raise WrongBehaviour("an output aliases an input: outputs must be new memory")

    def _arena_mappings(self) -> list[tuple[int, int]]:
        """Return the address ranges at which the worker maps the arena."""
        # The file has about a thousand lines and is read after every block, so lines are filtered before they are
        # parsed.
        lines = (line for line in self.worker.memory.mappings().split("\n") if "kernwright-arena" in line)
        found = [re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line) for line in lines]
        return [(int(ends[1], 16), int(ends[2], 16)) for ends in found if ends is not None]

    def refuse_damage(self, order: Sequence[int]) -> None:
        """Raise if canaries are overwritten, inputs changed, or slots that were not called have been written."""
        image, self._image = self._image, None
        if image is not None and same_bytes(self.arena.bytes, image):
            return  # one comparison replaces those of all tensors, which are only needed to name the damage
        broken = self.arena.broken_guard()
        if broken is not None:
            raise WrongBehaviour(f"wrote outside its outputs (canary at byte {broken} is overwritten)")
        self._refuse_damaged_slots(order)

    def _refuse_damaged_slots(self, order: Sequence[int]) -> None:
        for slot, contents in self._contents.items():
            for name, content in contents.items():
                if name in self.op.inplace and slot in order:
                    continue
                if not same_bytes(self.arena.tensor(slot, name), content):
                    raise WrongBehaviour(f"changed its input {name}")
        if self.style == "writes":
            for slot in set(self._contents) - set(order):
                if not all(self.arena.is_poisoned(slot, name) for name in self.output_specs):
                    raise WorkerCheated("wrote the output of a slot that had not been called")

    def close(self) -> None:
        self._retained = RetainedOutputs(0, ())
        self.arena.close()


def _no_outputs(_: Sequence[int]) -> Outputs:
    return {}


def same_bytes(found: Tensor, expected: Tensor) -> bool:
    """Return whether two tensors are bitwise equal, NaN included."""
    if found.device.type == "cpu" and found.is_contiguous() and expected.is_contiguous():
        return _same_memory(found, expected)
    return bool(torch.equal(as_integers(found), as_integers(expected)))


def as_integers(tensor: Tensor) -> Tensor:
    """Return the bits of each element as an integer."""
    widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(widths[tensor.element_size()])


def _same_memory(found: Tensor, expected: Tensor) -> bool:
    """Compare with memcmp, which takes a tenth of the time of torch.equal."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    return bool(_memcmp(found.data_ptr(), expected.data_ptr(), expected.nbytes) == 0)
