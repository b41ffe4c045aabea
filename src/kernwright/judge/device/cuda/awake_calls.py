"""AwakeCalls: single calls of a worker that keeps running between them, so that its context stays on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernwright.judge.device.cuda.memory.host_staging import Pieces
from kernwright.judge.process.block import Block
from kernwright.judge.process.faults import WorkerCheated

if TYPE_CHECKING:
    from kernwright.judge.device.cuda.session import CudaSession


class AwakeCalls:
    """Blocks of one call or of none, of a worker that is not stopped in between.

    The inputs of a call are uploaded after the clock has started, and pieces of its outputs are downloaded before the
    clock stops.
    """

    def __init__(self, session: CudaSession) -> None:
        self.session = session
        self.blocks: list[Block] = []
        self.downloads: list[tuple[list[Pieces], list[Tensor]]] = []  # pieces of the outputs of each call
        self.span = (0, 0)

    def call(self, slot: int | None, image: Tensor, place: Tensor) -> None:
        """Time one call, or an empty block if `slot` is None. `image` is uploaded to `place` first."""
        staging = self.session.keeper.staging
        pieces, download = self._prepare_download(slot or 0)
        self.blocks.append(self.block([] if slot is None else [slot], lambda: staging.upload(image, place), download))
        if slot is not None:
            self.downloads.append((pieces, staging.downloaded(pieces)))

    def block(
        self,
        order: Sequence[int],
        upload: Callable[[], None] | None = None,
        download: Callable[[Sequence[int]], None] | None = None,
    ) -> Block:
        session = self.session
        return session.worker.run_block(
            order,
            len(session.output_specs),
            session.block_deadline_s,
            secure=download,
            bring=upload,
            stays_awake=True,
        )

    def whole(self) -> Block:
        """Return one block of all calls, each with the typical time. Call it after the worker has been stopped."""
        awake_ns, used_ns = self.span
        return replace(Block.typical(self.blocks), running_ns=awake_ns, processor_ns=used_ns)

    def _prepare_download(self, slot: int) -> tuple[list[Pieces], Callable[[Sequence[int]], None]]:
        """Choose pieces of a call's outputs. Return them and the function that downloads them.

        In an empty block the same amount is downloaded from elsewhere, so that the overhead is the same.
        """
        session, arena, staging = self.session, self.session.arena, self.session.keeper.staging
        sizes = [spec.span_bytes for spec in session.output_specs.values()]
        changed = [arena.layout.place(slot, name) for name in session.changed_inputs]
        pieces = staging.choose_pieces([*sizes, *(placed.tensor.span_bytes for placed in changed)])
        in_arena = [arena.bytes.data_ptr() + placed.offset for placed in changed]
        start = session.region.bytes.data_ptr()

        def download(pointers: Sequence[int]) -> None:
            offsets = session.region.offsets(pointers, sizes) if pointers else [0] * len(sizes)
            staging.download([*(start + offset for offset in offsets), *in_arena])

        return pieces, download

    def refuse_late_work(self, slots: Sequence[int], places: Sequence[int]) -> None:
        """Raise if downloaded pieces differ from the final outputs, which begin at `places` in the keeper's copy."""
        session, arena = self.session, self.session.arena
        outputs = len(session.output_specs)
        for call, (pieces, downloaded) in enumerate(self.downloads):
            starts = [(session.keeper.memory, place) for place in places[call * outputs : (call + 1) * outputs]]
            starts += [(arena.bytes, arena.layout.place(slots[call], name).offset) for name in session.changed_inputs]
            for piece, early, (memory, start) in zip(pieces, downloaded, starts, strict=False):
                if piece.width and not torch.equal(piece.within(memory, start).cpu(), early):
                    raise WorkerCheated("outputs changed after the call had reported its end")
