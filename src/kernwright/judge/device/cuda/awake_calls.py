"""AwakeCalls: calls by themselves, of a worker whose context stays on the GPU between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernwright.judge.device.cuda.memory.lane import Pieces
from kernwright.judge.process.block import Block
from kernwright.judge.process.faults import WorkerCheated

if TYPE_CHECKING:
    from kernwright.judge.device.cuda.session import CudaSession


class AwakeCalls:
    """Blocks of one call, or of none, by a worker that is not stopped in between. Each call's inputs come when the
    clock runs, and pieces of its outputs are looked at before it stops."""

    def __init__(self, session: CudaSession) -> None:
        self.session = session
        self.blocks: list[Block] = []
        self.glances: list[tuple[list[Pieces], list[Tensor]]] = []
        self.span = (0, 0)

    def call(self, slot: int | None, image: Tensor, place: Tensor) -> None:
        lane = self.session.keeper.lane
        pieces, glance = self._aimed(slot or 0)
        self.blocks.append(self.block([] if slot is None else [slot], lambda: lane.bring(image, place), glance))
        if slot is not None:
            self.glances.append((pieces, lane.seen(pieces)))

    def block(
        self,
        order: Sequence[int],
        bring: Callable[[], None] | None = None,
        glance: Callable[[Sequence[int]], None] | None = None,
    ) -> Block:
        session = self.session
        return session.worker.run_block(
            order,
            len(session.output_specs),
            session.block_deadline_s,
            secure=glance,
            bring=bring,
            stays_awake=True,
        )

    def whole(self) -> Block:
        """The typical call's time, and the processor time of all of them: only now that it stands still is it known."""
        awake_ns, used_ns = self.span
        return replace(Block.typical(self.blocks), running_ns=awake_ns, processor_ns=used_ns)

    def _aimed(self, slot: int) -> tuple[list[Pieces], Callable[[Sequence[int]], None]]:
        """A look at pieces of what a call leaves, ready to be taken. Where no call was made it looks at as much
        elsewhere: the same time for all."""
        session, arena, lane = self.session, self.session.arena, self.session.keeper.lane
        sizes = [spec.span_bytes for spec in session.output_specs.values()]
        changed = [arena.layout.place(slot, name) for name in session.changed_inputs]
        pieces = lane.aim([*sizes, *(placed.tensor.span_bytes for placed in changed)])
        in_arena = [arena.bytes.data_ptr() + placed.offset for placed in changed]
        start = session.region.bytes.data_ptr()

        def glance(pointers: Sequence[int]) -> None:
            offsets = session.region.offsets(pointers, sizes) if pointers else [0] * len(sizes)
            lane.glance([*(start + offset for offset in offsets), *in_arena])

        return pieces, glance

    def refuse_late_work(self, slots: Sequence[int], places: Sequence[int]) -> None:
        """To be called with all outputs in the keeper, where they begin at `places`: what a glance saw must be what is
        there now."""
        session, arena = self.session, self.session.arena
        outputs = len(session.output_specs)
        for call, (pieces, seen) in enumerate(self.glances):
            starts = [(session.keeper.memory, place) for place in places[call * outputs : (call + 1) * outputs]]
            starts += [(arena.bytes, arena.layout.place(slots[call], name).offset) for name in session.changed_inputs]
            for piece, early, (memory, start) in zip(pieces, seen, starts, strict=False):
                if piece.width and not torch.equal(piece.within(memory, start).cpu(), early):
                    raise WorkerCheated("outputs changed after the call had said that it was done")
