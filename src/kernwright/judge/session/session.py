"""Session: one worker with one row open, its slots in an arena that the judge fills, reads and guards."""

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
    Check,
    Done,
    Events,
    EventTime,
    Explain,
    Explanation,
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
MOST_REFUSAL = 300  # characters that one implementation has against a call
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class WrongBehaviour(WorkerFault):
    """The call broke a rule of the op: it wrote where it must not, or handed out memory twice."""


class DeviceBusy(Exception):
    """Somebody's work is on the device while every worker stands still."""


class DeviceSlowed(DeviceBusy):
    """The same, by what it takes from the device's memory. Or the device is slower than it was."""


class OutputsMoved(Exception):
    """A block left outputs where they were not expected. Where they are is known now, and what they are: the block does
    not count, but it must be right all the same."""

    side: Any = None
    first: int = 0  # the number of its first call, of those that contents were placed for

    def __init__(self, block: Block, left: Any) -> None:
        self.block, self.left = block, left
        super().__init__("outputs lie elsewhere than before")


def bytes_per_slot(row: Workload, style: Style) -> int:
    tensors = row.concrete_inputs() | (row.concrete_outputs() if style == "writes" else {})
    return slot_bytes(tensors)


def bytes_of_outputs(row: Workload) -> int:
    return sum(spec.span_bytes for spec in row.concrete_outputs().values())


class Session:
    """Fill, run, read back. Every read is from a stopped worker."""

    block_deadline_s = 120.0
    outputs_may_move = False  # whether the judge must know beforehand where a block leaves its outputs
    loop_takes_all_slots = False  # whether `device` can only run every slot, in the order of its making
    wall_calls = 4  # of a block
    tells_events = False  # whether the device itself takes the time of a block
    watches_held = True  # whether what the worker holds is compared; a side that is trusted only holds it
    release_ns = 0  # of the worker's processor, for letting go of old outputs the last time
    protocol_drifts = False  # whether what an exchange takes must be measured anew for every quad of `wall`

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
        """New contents for a slot, its outputs poisoned. The worker stands still meanwhile."""
        for name, content in contents.items():
            self.arena.tensor(slot, name).copy_(content)
        if self.style == "writes":
            for name in self.output_specs:
                self.arena.poison(slot, name)
        self._contents[slot] = contents

    def fill_all(self, contents: Inputs) -> None:
        """The same contents for every slot: to warm up with."""
        for slot in range(self.slots):
            self.fill(slot, contents)

    def open_loop(self) -> str | None:
        """Asks for the loop without Python that `device` is measured with; the reason where there is none.

        It hands out the same outputs every time, by design, and what a graph uses in between is any call's memory:
        from here on nothing is held.
        """
        self.let_go()
        reason = self.worker.request(OpenLoop(), LoopAnswer, BUILD_DEADLINE_S).unavailable
        return None if reason is None else reason[:300]

    def prepare(self) -> None:
        """Before a slot is filled: the worker lets go of old outputs, all but a few; what slots still hold counts for
        nothing."""
        hold = self._retained.choose(self._outputs_at if self.watches_held else _nothing)
        self._refuse_overwritten()
        self.worker.request(Prepare(hold=tuple(hold)), Done, 60.0)
        self.release_ns = self.worker.request_ns
        if self.style == "writes":
            for slot in self._contents:
                for name in self.output_specs:
                    self.arena.poison(slot, name)
        self._contents.clear()

    def let_go(self) -> None:
        """After the last block whose outputs are held: they must still be what they were."""
        self._retained.end()
        self._refuse_overwritten()

    def arm(self) -> None:
        """Keeps a picture of the whole arena as it is before a block, where nothing in it may change."""
        if self.style == "returns" and not self.op.inplace:
            self._image = self.arena.bytes.clone()

    def begin(self, metric: Metric) -> None:
        """From here on blocks are of this metric. Outputs of another's are no longer held: of a block's hundreds of
        calls they lie where a call by itself would never leave any."""
        if metric != self._metric:
            self._metric = metric
            self._retained.expire()

    def ready(self) -> None:
        """Right before the clock starts: whatever must be so on the device."""

    def check_call(self, slot: int, deadline_s: float) -> Outputs:
        """One call by itself, with every rule looked at."""
        pointers = self.worker.request(Check(slot=slot), OutputPointers, deadline_s).pointers
        outputs = self.snapshot([slot], pointers)[0]
        self.look_for_damage([slot])
        return outputs

    def event_ns(self) -> int:
        """What the device's own events made of the last block, as the worker tells it: a time of
        trusted sides alone."""
        return self.worker.request(Events(), EventTime, 60.0).ns

    def census(self, profiled: bool = True, slot: int = 0) -> list[Kernel]:
        """The kernels that a call launches, as the worker tells it: reported, never relied on. Without a
        profiler it is quicker, where calls can be captured."""
        answer = self.worker.request(Census(slot=slot, profiled=profiled), LaunchedKernels, BUILD_DEADLINE_S)
        try:
            return [
                Kernel(name=kernel.name, stream=kernel.stream, count=kernel.count)
                for kernel in answer.kernels[:MOST_KERNELS]
            ]
        except ValueError:
            raise WorkerCheated("answered the census with a kernel name of more than 300 characters") from None

    def implementation(self, slot: int = 0) -> RanImplementation:
        """What a shipped op runs on a slot. Reported, never relied on."""
        answer = self.worker.request(Explain(slot=slot), Explanation, BUILD_DEADLINE_S)
        refused = tuple(reason[:MOST_REFUSAL] for reason in answer.refused)
        try:
            return RanImplementation(backend=answer.backend, contract=answer.contract, refused=refused)
        except ValueError:
            raise WorkerCheated("named an implementation that no shipped op has") from None

    def run_alone(self, contents: PlaceableContents, slots: Sequence[int]) -> Iterator[tuple[int, Block, Any]]:
        """`wall`: one call after the other, each on contents that are written when the call before it is over and the
        worker stands still. Gives the number of a first call, the block, and what it left."""
        for number, slot in enumerate(slots):
            contents.place(self, [slot], number)
            self.ready()
            try:
                block, left = self.run([slot])
            except OutputsMoved as moved:
                moved.first = number
                raise
            yield number, block, left

    def run_nothing(self, repeats: int) -> list[Block]:
        """Blocks without a call: what the protocol itself takes."""
        self.prepare()
        blocks = []
        for _ in range(repeats):
            self.ready()
            blocks.append(self.run([], with_python=self._metric != "device")[0])
        return blocks

    def run(self, order: Sequence[int], *, with_python: bool = True) -> tuple[Block, Any]:
        """One timed block and what it left, for the contents that were placed to look at."""
        block = self.worker.run_block(order, len(self.output_specs), self.block_deadline_s, with_python)
        outputs = self.snapshot(order, block.pointers)
        self.look_for_damage(order)
        self._forget_changed(order)
        return block, outputs

    def _forget_changed(self, order: Sequence[int]) -> None:
        """What calls changed, as they should, the next look must not mind."""
        if self.changed_inputs:
            for slot in order:
                self._contents.pop(slot, None)

    def outputs_of(self, left: Any, call: int) -> Outputs:
        """One call's outputs, of what a block left."""
        outputs: Outputs = left[call]
        return outputs

    def snapshot(self, order: Sequence[int], pointers: Sequence[int]) -> list[Outputs]:
        """Copies of what the block left, in the order of its calls."""
        returned = self._written(order) if self.style == "writes" else self._returned(order, pointers)
        for slot, outputs in zip(order, returned, strict=True):
            outputs |= {name: self.arena.tensor(slot, name).clone() for name in self.changed_inputs}
        return returned

    def _written(self, order: Sequence[int]) -> list[Outputs]:
        return [{name: self.arena.tensor(slot, name).clone() for name in self.output_specs} for slot in order]

    def _returned(self, order: Sequence[int], pointers: Sequence[int]) -> list[Outputs]:
        self._refuse_shared_memory(order, pointers)
        outputs = len(self.output_specs)
        return [self._outputs_at(pointers[call * outputs : (call + 1) * outputs]) for call in range(len(order))]

    def _outputs_at(self, pointers: Sequence[int]) -> Outputs:
        """Copies of one call's outputs."""
        outputs: Outputs = {}
        for pointer, (name, spec) in zip(pointers, self.output_specs.items(), strict=True):
            copy = torch.empty(spec.span_bytes // spec.item_bytes, dtype=getattr(torch, spec.torch_dtype_name))
            if copy.numel():
                self.worker.memory.read(pointer, copy)
            outputs[name] = copy.as_strided(spec.shape, spec.strides)
        return outputs

    def _refuse_shared_memory(self, order: Sequence[int], pointers: Sequence[int]) -> None:
        """Outputs of different calls, and inputs, must not be the same memory: a call returns what it computed."""
        sizes = [spec.span_bytes for spec in self.output_specs.values()]
        if len(pointers) != len(order) * len(sizes):
            raise WorkerCheated(f"left {len(pointers)} outputs where {len(order) * len(sizes)} were asked for")
        spans = sorted(zip(pointers, map(add, pointers, cycle(sizes)), strict=False))  # of a block's, hundreds
        starts, ends = (start for start, _ in spans), (end for _, end in spans)
        if any(map(gt, ends, islice(starts, 1, None))):
            raise WrongBehaviour("two calls returned the same memory: outputs must not be reused or cached")
        if self._retained.lie_in(spans):
            raise WrongBehaviour("an output that its caller still holds was handed out again, by a later call")
        self._refuse_aliases(spans)
        self._retained.note(pointers)

    def _refuse_overwritten(self) -> None:
        if not self._are_unchanged(self._retained.parting):
            raise WrongBehaviour("an output that its caller still holds was overwritten, by later calls")

    def _are_unchanged(self, retained: Sequence[RetainedOutput]) -> bool:
        return all(
            same_bytes(found, retained_output.values[name])
            for retained_output in retained
            if retained_output.values
            for name, found in self._outputs_at(retained_output.pointers).items()
        )

    def _refuse_aliases(self, spans: Sequence[tuple[int, int]]) -> None:
        for low, high in self._arena_mappings():
            if any(start < high and end > low for start, end in spans):
                raise WrongBehaviour("an output aliases an input: outputs need memory of their own")

    def _arena_mappings(self) -> list[tuple[int, int]]:
        """Of a thousand lines one or two are meant, and this is asked after every block."""
        meant = (line for line in self.worker.memory.mappings().split("\n") if "kernwright-arena" in line)
        found = [re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line) for line in meant]
        return [(int(ends[1], 16), int(ends[2], 16)) for ends in found if ends is not None]

    def look_for_damage(self, order: Sequence[int]) -> None:
        """Canaries whole, inputs as they were, slots that nobody asked for untouched."""
        image, self._image = self._image, None
        if image is not None and same_bytes(self.arena.bytes, image):
            return  # one comparison instead of one a tensor; what follows only finds out which it was
        broken = self.arena.broken_guard()
        if broken is not None:
            raise WrongBehaviour(f"wrote outside its outputs (canary at byte {broken} is gone)")
        self._look_at_slots(order)

    def _look_at_slots(self, order: Sequence[int]) -> None:
        for slot, contents in self._contents.items():
            for name, content in contents.items():
                if name in self.op.inplace and slot in order:
                    continue
                if not same_bytes(self.arena.tensor(slot, name), content):
                    raise WrongBehaviour(f"changed its input {name}")
        if self.style == "writes":
            for slot in set(self._contents) - set(order):
                if not all(self.arena.is_poisoned(slot, name) for name in self.output_specs):
                    raise WorkerCheated("wrote an output that no call had asked for yet")

    def close(self) -> None:
        self._retained = RetainedOutputs(0, ())
        self.arena.close()


def _nothing(_: Sequence[int]) -> Outputs:
    return {}


def same_bytes(held: Tensor, content: Tensor) -> bool:
    """Bit equality: NaN inputs must stay the NaN they were."""
    if held.device.type == "cpu" and held.is_contiguous() and content.is_contiguous():
        return _same_memory(held, content)
    return bool(torch.equal(as_integers(held), as_integers(content)))


def as_integers(tensor: Tensor) -> Tensor:
    """Its bits, element by element."""
    widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(widths[tensor.element_size()])


def _same_memory(held: Tensor, content: Tensor) -> bool:
    """In a tenth of the time that torch takes, which compares one element after the other."""
    if held.dtype != content.dtype or held.shape != content.shape:
        return False
    return bool(_memcmp(held.data_ptr(), content.data_ptr(), content.nbytes) == 0)
