"""CudaSession: the same fill, run and read back, on a GPU.

A stopped process says nothing about the device: what it launched runs on. So the judge takes the outputs into its own
memory before its clock stops. Work that was put off either comes too late to be in that copy, or holds the copy up and
is paid for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import cycle
from operator import add
from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.judge.device.cuda.awake_calls import AwakeCalls
from kernwright.judge.device.cuda.memory.block_outputs import BlockOutputs
from kernwright.judge.device.cuda.memory.held_slots import HeldSlots
from kernwright.judge.device.cuda.memory.region import BUSY_NS, OutputKeeper, Region, lend, view_of
from kernwright.judge.device.cuda.memory.window import Span
from kernwright.judge.numerics.contents import PlaceableContents
from kernwright.judge.numerics.inputs import Inputs
from kernwright.judge.process.block import Block
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.protocol.layout import SlotLayout
from kernwright.judge.record.verdict import Kernel
from kernwright.judge.session.arena import Arena
from kernwright.judge.session.retained_outputs import RetainedOutput, RetainedOutputs
from kernwright.judge.session.session import DeviceBusy, Outputs, OutputsMoved, Session, as_integers
from kernwright.judge.system.cuda_driver import reset_persisting_l2
from kernwright.tasks.candidate import Style
from kernwright.tasks.policy import Metric
from kernwright.tasks.workload import Workload

MOST_LANE_BYTES = 2**24  # of a call's inputs: they come while the clock runs, so they must not take long
MOST_ALONE = 21  # calls of a `wall` block, of which the middle one counts: the first ones find everything cold
LEAST_ALONE = 5
MOST_IMAGES = 2**25  # bytes of the inputs of such a block's calls, which the host keeps
MOST_SWITCHED = 2  # calls of one with a switch between contexts each, which takes longer than most calls
GRAPH_BYTES = 2**31  # that are to be free when one is made: far more than its nodes take
FLUSH_FACTOR = 2  # times the cache, written before a block: no input is in it from being filled


class CudaSession(Session):
    """One worker with one row open, in memory that the judge lent it."""

    block_deadline_s = 30.0
    outputs_may_move = True
    loop_takes_all_slots = True
    tells_events = True

    def __init__(
        self,
        worker: WorkerProcess,
        op: Op,
        row: Workload,
        style: Style,
        slots: int,
        region: Region,
        keeper: OutputKeeper,
    ) -> None:
        self.region, self.keeper = region, keeper
        self._left: list[tuple[int, int]] = []
        keeper.begin(row.id)
        region.begin(row.id)
        self._flush = _flush_buffer(keeper.device)
        super().__init__(worker, op, row, style, slots)

    def _open(self) -> None:
        if self.changed_inputs:
            self.keeper.changed.expect(self._slots_bytes.numel())
        super()._open()

    def _make_arena(self, layout: SlotLayout) -> Arena:
        memory = lend(layout.size, self.keeper.device, "a row's inputs")
        assert memory.descriptor is not None
        held = torch.as_tensor(memory, device=f"cuda:{self.keeper.device}")[: layout.size]
        arena = Arena(layout, memory.descriptor, held, memory.close)
        self.held_slots = HeldSlots(arena, self.op.inplace)
        return arena

    def place(self, contents: dict[str, Tensor], slots: Sequence[int]) -> None:
        self.held_slots.place(contents, slots)

    def fill_all(self, contents: Inputs) -> None:
        for name, content in contents.items():
            self.arena.stacked(name).copy_(content)
        self._contents = dict.fromkeys(range(self.slots), contents)

    def save_image(self) -> None:
        """Nothing to keep: after the block the slots are held against their contents."""

    def open_loop(self) -> str | None:
        """A graph needs room on the device, and one that finds none is lost with all that its calls hold. What torch
        keeps here of memory that the judge has given back is free for it."""
        if torch.cuda.mem_get_info(self.keeper.device)[0] < GRAPH_BYTES:
            torch.cuda.empty_cache()
        return super().open_loop()

    def check_call(self, slot: int, deadline_s: float) -> Outputs:
        self._settle()
        return super().check_call(slot, deadline_s)

    def census(self, profiled: bool = True, slot: int = 0) -> list[Kernel]:
        self._settle()
        return super().census(profiled, slot)

    def _settle(self) -> None:
        """What the judge has written is there before the worker goes on; on a busy device it may still be queued."""
        torch.cuda.synchronize(self.keeper.device)

    def prepare(self) -> None:
        """What the last block returned is free memory now; it is poisoned, whoever gets it next. What the worker still
        holds is not."""
        free = {*self._left, *self._held_spans}
        super().prepare()
        self.held_slots.forget()
        from kernwright.judge.device.cuda.memory.distance import poison

        poison(self.region.bytes, sorted(free.difference(self._held_spans)))
        self._left = []

    @property
    def _held_spans(self) -> list[tuple[int, int]]:
        """In the region."""
        return [(start - self.region.base, end - self.region.base) for start, end in self._retained.spans]

    def begin(self, metric: Metric) -> None:
        super().begin(metric)
        self.keeper.metric = metric

    def ready(self) -> None:
        """Right before a block: nothing pinned in caches, nobody else on the device, its memory at full speed, caches
        cold."""
        reset_persisting_l2()
        self._settle()
        if (waited := self.keeper.waits_ns()) > BUSY_NS:
            raise DeviceBusy(f"the GPU answers in {waited / 1e3:.0f} us while every worker stands still")
        self.keeper.refuse_slowness()
        self._flush.fill_(1)
        self._settle()

    def run(self, order: Sequence[int], *, with_python: bool = True) -> tuple[Block, BlockOutputs]:
        changed: dict[str, Tensor] = {}

        def secure(_: Sequence[int]) -> None:
            changed.update(self._secure_changed(order))
            self.keeper.secure(self.region)

        block = self.worker.run_block(order, len(self.output_specs), self.block_deadline_s, with_python, secure)
        offsets = self._offsets(order, block.pointers)
        is_late = not self.keeper.reaches(self._left_span, self.region, self._retained.extra_bytes)
        if is_late:  # the window lies elsewhere now: the next block's outputs are copied in time
            self.keeper.secure(self.region)
        if order:  # blocks of no calls are the baseline's twin's alone
            self.refuse_damage(order)
            self._forget_changed(order)
            self.held_slots.let_go()
        left = BlockOutputs(self.keeper, self.output_specs, self.keeper.places(offsets), changed, order)
        if is_late:
            raise OutputsMoved(block, left)
        return block, left

    def _secure_changed(self, order: Sequence[int]) -> dict[str, Tensor]:
        """While a block's clock runs: as much as any side's. Of calls by themselves their own slots."""
        if not self.changed_inputs:
            return {}
        keeper = self.keeper.changed
        if self.keeper.metric == "wall":
            return self._changed(keeper.secure_some(self._slots_bytes, self.arena.layout.pitch, order))
        return self._changed(keeper.secure_block(self._slots_bytes))

    def _changed(self, slots: Tensor) -> dict[str, Tensor]:
        """What calls change, in all slots."""
        return {name: self.arena.stacked(name, slots) for name in self.changed_inputs}

    @property
    def _slots_bytes(self) -> Tensor:
        return self.arena.bytes[: self.arena.layout.tail[0]]

    def _offsets(self, order: Sequence[int], pointers: Sequence[int]) -> list[int]:
        """Where calls left their outputs in the region; refused where two lie in the same memory."""
        sizes = [spec.span_bytes for spec in self.output_specs.values()]
        if sizes:
            self._refuse_shared_memory(order, pointers)
        offsets = self.region.offsets(pointers, sizes)
        self._left = list(zip(offsets, map(add, offsets, cycle(sizes)), strict=True)) if sizes else []
        return offsets

    @property
    def _left_span(self) -> Span:
        starts, ends = (start for start, _ in self._left), (end for _, end in self._left)
        return min(starts, default=0), max(ends, default=0)

    # A call by itself, while the worker's context stays on the GPU

    @property
    def _has_lane(self) -> bool:
        """Whether inputs may come by way of the host. A call on more takes long enough to be timed with the switches
        between contexts in it; and while much arrives, a side could work on what is there already."""
        return self.arena.layout.pitch <= MOST_LANE_BYTES

    @property
    def wall_calls(self) -> int:  # type: ignore[override]
        if not self._has_lane:
            return MOST_SWITCHED
        return max(LEAST_ALONE, min(MOST_ALONE, MOST_IMAGES // self.arena.layout.pitch))

    @property
    def protocol_drifts(self) -> bool:  # type: ignore[override]
        """An exchange with a worker that waits awake takes as long as its processor's mood of the moment has it; one
        with switches between contexts and a stop in it is measured once, like a block."""
        return self._has_lane

    def run_single_calls(self, contents: PlaceableContents, slots: Sequence[int]) -> Iterator[tuple[int, Block, Any]]:
        """Each call's inputs come when the call before it is over and the clock runs, by the copy engines, while the
        worker waits awake: its processor and the GPU are as they are in a program that calls again and again. Before
        the clock stops, pieces of its outputs are looked at, at places that nobody can foresee; they must be final by
        then."""
        if not self._has_lane:
            yield from super().run_single_calls(contents, slots)
            return
        contents.place(self, slots)
        inputs = [self._slot_bytes(slot) for slot in slots]
        images = self.keeper.lane.keep(inputs)
        for place in inputs:
            place.zero_()  # nothing to work on before its turn
        with self._awake() as awake:
            for slot, place, image in zip(slots, inputs, images, strict=True):
                awake.call(slot, image, place)
        whole = awake.whole()
        offsets = self._offsets(slots, whole.pointers)
        self.keeper.reaches(self._left_span, self.region, self._retained.extra_bytes)
        self.keeper.secure(self.region)
        places = self.keeper.places(offsets)
        awake.refuse_late_work(slots, places)
        self.refuse_damage(slots)
        self.held_slots.let_go()
        changed = self._secure_changed(slots)
        yield 0, whole, BlockOutputs(self.keeper, self.output_specs, places, changed, slots)

    def run_empty_blocks(self, repeats: int) -> list[Block]:
        """Each does all that a block with calls does, but for the calls."""
        if self.keeper.metric != "wall" or not self._has_lane:
            self.prepare()
            blocks = []
            for _ in range(repeats):
                self.ready()
                blocks.append(self.run([], with_python=self.keeper.metric != "device")[0])
            return blocks
        self.prepare()
        place = self._slot_bytes(0)
        (image,) = self.keeper.lane.keep([place])
        with self._awake() as awake:
            for _ in range(repeats):
                awake.call(None, image, place)
        return awake.blocks

    @contextlib.contextmanager
    def _awake(self) -> Iterator[AwakeCalls]:
        """Caches cold, nobody else there; then a block of no calls, which pays for the switch to the worker. From here
        to the end the worker waits awake and its context stays on the GPU."""
        self.ready()
        calls = AwakeCalls(self)
        try:
            calls.block([])
            yield calls
            calls.span = self.worker.stand_still()
        except BaseException:
            with contextlib.suppress(Exception):
                self.worker.stand_still()
            raise

    def _slot_bytes(self, slot: int) -> Tensor:
        pitch = self.arena.layout.pitch
        return self.arena.bytes[slot * pitch : (slot + 1) * pitch]

    def outputs_of(self, left: Any, call: int) -> Outputs:
        return {name: left.value(name, call) for name in (*self.output_specs, *self.changed_inputs)}

    def _refuse_aliases(self, spans: Sequence[tuple[int, int]]) -> None:
        """Outputs lie in the region or are refused; inputs lie elsewhere."""

    def _outputs_at(self, pointers: Sequence[int]) -> Outputs:
        """Straight out of the region."""
        return {name: found.clone() for name, found in self._views_at(pointers).items()}

    def _views_at(self, pointers: Sequence[int]) -> Outputs:
        specs = self.output_specs
        offsets = self.region.offsets(pointers, [spec.span_bytes for spec in specs.values()])
        places = zip(specs.items(), offsets, strict=True)
        return {name: view_of(self.region.bytes, offset, spec) for (name, spec), offset in places}

    def _are_unchanged(self, retained: Sequence[RetainedOutput]) -> bool:
        """All in one go: the judge waits for the GPU once."""
        differ = [
            (as_integers(found) != as_integers(retained_output.values[name])).any()
            for retained_output in retained
            if retained_output.values
            for name, found in self._views_at(retained_output.pointers).items()
        ]
        return not differ or not bool(torch.stack(differ).any())

    def refuse_damage(self, order: Sequence[int]) -> None:
        """All guards and all inputs in one go: the judge waits for the GPU once."""
        if self.style == "writes":
            super().refuse_damage(order)
            return
        self.held_slots.look(order, self._contents)

    def close(self) -> None:
        self._settle()
        self._retained = RetainedOutputs(0, ())
        self.held_slots.close()
        release = self.arena.release
        self.arena.bytes = torch.empty(0)
        release()


_flush_buffers: dict[int, Tensor] = {}


def _flush_buffer(device: int) -> Tensor:
    if device not in _flush_buffers:
        cache = torch.cuda.get_device_properties(device).L2_cache_size
        _flush_buffers[device] = torch.empty(FLUSH_FACTOR * cache, dtype=torch.uint8, device=f"cuda:{device}")
    return _flush_buffers[device]
