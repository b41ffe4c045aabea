"""CudaSession: a session on a GPU.

Kernels that a process launched keep running after the process is stopped. So the judge copies the outputs into its own
memory before the clock stops. Deferred work either misses the copy, and the outputs are wrong, or delays the copy, and
is part of the measured time.
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
from kernwright.judge.protocol.messages import CensusSource
from kernwright.judge.record.verdict import Kernel
from kernwright.judge.session.arena import Arena
from kernwright.judge.session.retained_outputs import RetainedOutput, RetainedOutputs
from kernwright.judge.session.session import DeviceBusy, Outputs, OutputsMoved, Session, as_integers
from kernwright.judge.system.cuda_driver import reset_persisting_l2
from kernwright.tasks.candidate import Style
from kernwright.tasks.policy import Metric
from kernwright.tasks.workload import Workload

MAX_STAGED_BYTES = 2**24  # size of a call's inputs up to which they are uploaded while the clock runs
MAX_SINGLE_CALLS = 21  # calls of a `wall` block; the median counts, because the first calls run with cold caches
MIN_SINGLE_CALLS = 5
MAX_IMAGE_BYTES = 2**25  # host memory for the inputs of all calls of such a block
MAX_SWITCHED_CALLS = 2  # calls of a `wall` block with a context switch per call, which takes longer than most calls
GRAPH_BYTES = 2**31  # free device memory required before a graph is captured, far more than its nodes take
FLUSH_FACTOR = 2  # multiple of the L2 cache size that is written before a block, to evict the block's inputs


class CudaSession(Session):
    """One row open in one worker, whose inputs and outputs are in memory that the judge lent."""

    block_deadline_s = 30.0
    outputs_may_move = True
    loop_takes_all_slots = True
    tells_events = True
    long_run_slots, long_run_bytes = 512, 2**28

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
        self._output_spans: list[tuple[int, int]] = []  # outputs of the last block, as offsets in the region
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
        """Do nothing: slots are compared with their contents after the block."""

    def open_loop(self) -> str | None:
        """Free the judge's cached memory if little is left: a graph that runs out of memory leaks that of its calls."""
        if torch.cuda.mem_get_info(self.keeper.device)[0] < GRAPH_BYTES:
            torch.cuda.empty_cache()
        return super().open_loop()

    def finish_writes(self) -> None:
        self._synchronize()

    def check_call(self, slot: int, deadline_s: float) -> Outputs:
        self._synchronize()
        return super().check_call(slot, deadline_s)

    def census(self, source: CensusSource = "profiler", slot: int = 0) -> list[Kernel]:
        self._synchronize()
        return super().census(source, slot)

    def _synchronize(self) -> None:
        """Wait until all writes of the judge have finished, before the worker continues."""
        torch.cuda.synchronize(self.keeper.device)

    def prepare(self) -> None:
        """Poison the outputs of the last block as well, which are free now, except for retained ones."""
        free = {*self._output_spans, *self._retained_spans}
        super().prepare()
        self.held_slots.forget()
        from kernwright.judge.device.cuda.memory.distance import poison

        poison(self.region.bytes, sorted(free.difference(self._retained_spans)))
        self._output_spans = []

    @property
    def _retained_spans(self) -> list[tuple[int, int]]:
        """The retained outputs, as offsets in the region."""
        return [(start - self.region.base, end - self.region.base) for start, end in self._retained.spans]

    def begin(self, metric: Metric) -> None:
        super().begin(metric)
        self.keeper.metric = metric

    def ready(self) -> None:
        """Make sure that the L2 cache is cold and not reserved, the device is idle and its memory at full speed."""
        reset_persisting_l2()
        self._synchronize()
        if (response := self.keeper.response_ns()) > BUSY_NS:
            raise DeviceBusy(f"a tiny kernel takes {response / 1e3:.0f} us on the GPU although every worker is stopped")
        self.keeper.require_full_speed()
        self._flush.fill_(1)
        self._synchronize()

    def run(self, order: Sequence[int], *, with_python: bool = True) -> tuple[Block, BlockOutputs]:
        changed: dict[str, Tensor] = {}

        def secure(_: Sequence[int]) -> None:
            changed.update(self._secure_changed(order))
            self.keeper.secure(self.region)

        block = self.worker.run_block(order, len(self.output_specs), self.block_deadline_s, with_python, secure)
        offsets = self._offsets(order, block.pointers)
        is_late = not self.keeper.covers(self._outputs_span, self.region, self._retained.extra_bytes)
        if is_late:  # the window has been moved, so that it covers the outputs of the next block
            self.keeper.secure(self.region)
        if order:  # empty blocks are run by the baseline's twin only, which is trusted
            self.refuse_damage(order)
            self._forget_changed(order)
            self.held_slots.drop_contents()
        outputs = BlockOutputs(self.keeper, self.output_specs, self.keeper.places(offsets), changed, order)
        if is_late:
            raise OutputsMoved(block, outputs)
        return block, outputs

    def _secure_changed(self, order: Sequence[int]) -> dict[str, Tensor]:
        """Copy the inputs that calls change in place, while the clock runs.

        Blocks copy the same number of bytes for every side, single calls only their slots.
        """
        if not self.changed_inputs:
            return {}
        keeper = self.keeper.changed
        if self.keeper.metric == "wall":
            return self._changed(keeper.secure_some(self._slots_bytes, self.arena.layout.pitch, order))
        return self._changed(keeper.secure_block(self._slots_bytes))

    def _changed(self, slots: Tensor) -> dict[str, Tensor]:
        """Return views of the inputs that calls change, in a copy of all slots."""
        return {name: self.arena.stacked(name, slots) for name in self.changed_inputs}

    @property
    def _slots_bytes(self) -> Tensor:
        return self.arena.bytes[: self.arena.layout.tail[0]]

    def _offsets(self, order: Sequence[int], pointers: Sequence[int]) -> list[int]:
        """Return the offsets of the outputs in the region. Raise if two of them share memory."""
        sizes = [spec.span_bytes for spec in self.output_specs.values()]
        if sizes:
            self._refuse_shared_memory(order, pointers)
        offsets = self.region.offsets(pointers, sizes)
        self._output_spans = list(zip(offsets, map(add, offsets, cycle(sizes)), strict=True)) if sizes else []
        return offsets

    @property
    def _outputs_span(self) -> Span:
        starts, ends = (start for start, _ in self._output_spans), (end for _, end in self._output_spans)
        return min(starts, default=0), max(ends, default=0)

    # Single calls, while the worker's context stays on the GPU

    @property
    def _is_staged(self) -> bool:
        """Return whether the inputs of single calls are uploaded from the host while the clock runs."""
        return self.arena.layout.pitch <= MAX_STAGED_BYTES

    @property
    def wall_calls(self) -> int:  # type: ignore[override]
        if not self._is_staged:
            return MAX_SWITCHED_CALLS
        return max(MIN_SINGLE_CALLS, min(MAX_SINGLE_CALLS, MAX_IMAGE_BYTES // self.arena.layout.pitch))

    @property
    def protocol_drifts(self) -> bool:  # type: ignore[override]
        """Return whether the overhead varies over time: true for exchanges with a worker that is not stopped in
        between."""
        return self._is_staged

    def run_single_calls(self, contents: PlaceableContents, slots: Sequence[int]) -> Iterator[tuple[int, Block, Any]]:
        """Run single calls of a worker that busy-waits between them, as in a program that calls repeatedly.

        The inputs of a call are uploaded by the copy engines after the previous call has ended and the clock has
        started. Before the clock stops, random pieces of the outputs are downloaded, which must be final by then.
        """
        if not self._is_staged:
            yield from super().run_single_calls(contents, slots)
            return
        contents.place(self, slots)
        inputs = [self._slot_bytes(slot) for slot in slots]
        images = self.keeper.staging.keep(inputs)
        for place in inputs:
            place.zero_()  # no call can start before its inputs are uploaded
        with self._awake() as awake:
            for slot, place, image in zip(slots, inputs, images, strict=True):
                awake.call(slot, image, place)
        whole = awake.whole()
        offsets = self._offsets(slots, whole.pointers)
        self.keeper.covers(self._outputs_span, self.region, self._retained.extra_bytes)
        self.keeper.secure(self.region)
        places = self.keeper.places(offsets)
        awake.refuse_late_work(slots, places)
        self.refuse_damage(slots)
        self.held_slots.drop_contents()
        changed = self._secure_changed(slots)
        yield 0, whole, BlockOutputs(self.keeper, self.output_specs, places, changed, slots)

    def run_empty_blocks(self, repeats: int) -> list[Block]:
        """Run blocks that do the same as blocks with calls, except for the calls."""
        if self.keeper.metric != "wall" or not self._is_staged:
            self.prepare()
            blocks = []
            for _ in range(repeats):
                self.ready()
                blocks.append(self.run([], with_python=self.keeper.metric != "device")[0])
            return blocks
        self.prepare()
        place = self._slot_bytes(0)
        (image,) = self.keeper.staging.keep([place])
        with self._awake() as awake:
            for _ in range(repeats):
                awake.call(None, image, place)
        return awake.blocks

    @contextlib.contextmanager
    def _awake(self) -> Iterator[AwakeCalls]:
        """Keep the worker running and its context on the GPU inside the context.

        An empty block at the start pays for the switch to the worker's context.
        """
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

    def outputs_of(self, block_outputs: Any, call: int) -> Outputs:
        return {name: block_outputs.value(name, call) for name in (*self.output_specs, *self.changed_inputs)}

    def _refuse_aliases(self, spans: Sequence[tuple[int, int]]) -> None:
        """Do nothing: outputs outside the region are refused, and inputs are not in the region."""

    def _outputs_at(self, pointers: Sequence[int]) -> Outputs:
        return {name: found.clone() for name, found in self._views_at(pointers).items()}

    def _views_at(self, pointers: Sequence[int]) -> Outputs:
        specs = self.output_specs
        offsets = self.region.offsets(pointers, [spec.span_bytes for spec in specs.values()])
        places = zip(specs.items(), offsets, strict=True)
        return {name: view_of(self.region.bytes, offset, spec) for (name, spec), offset in places}

    def _are_unchanged(self, retained: Sequence[RetainedOutput]) -> bool:
        """Compare all retained outputs with a single synchronization."""
        differ = [
            (as_integers(found) != as_integers(output.values[name])).any()
            for output in retained
            if output.values
            for name, found in self._views_at(output.pointers).items()
        ]
        return not differ or not bool(torch.stack(differ).any())

    def refuse_damage(self, order: Sequence[int]) -> None:
        """Compare all guards and inputs with a single synchronization."""
        if self.style == "writes":
            super().refuse_damage(order)
            return
        self.held_slots.refuse_damage(order, self._contents)

    def close(self) -> None:
        self._synchronize()
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
