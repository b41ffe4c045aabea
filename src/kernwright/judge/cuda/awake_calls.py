"""AwakeCalls: calls by themselves, of a worker whose context stays on the GPU between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from kernwright.judge.block import Block
from kernwright.judge.cuda.lane import Pieces

if TYPE_CHECKING:
    from kernwright.judge.cuda.session import CudaSession


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
        pieces, glance = self.session.aimed(slot or 0)
        self.blocks.append(self.block([] if slot is None else [slot], lambda: lane.bring(image, place), glance))
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
