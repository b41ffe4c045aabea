"""A worker passes tensors to its side as a program would, and makes each call once."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from kernwright.judge.protocol.messages import OpenRow
from kernwright.judge.protocol.orders import RowSignature, SideOrders, TensorPlacement
from kernwright.judge.worker.worker import Worker, with_own_storage
from kernwright.judge.worker.worker_device import CpuWorkerDevice


def add_in_place(x: Tensor, positions: Tensor) -> None:
    x.add_(positions.to(x.dtype)[:, None])


def tensors_of(arena: Tensor, apart: bool) -> tuple[Tensor, Tensor]:
    spans = arena[:128], arena[128:192]
    x, positions = map(with_own_storage, spans) if apart else spans
    return x.view(torch.float32).view(8, 4), positions.view(torch.int64)


def test_inputs_of_one_arena_are_no_views_of_each_other_to_a_compiler() -> None:
    """In a real program inputs are not views of one buffer. If a call changed one of several dtypes, it could not be
    compiled at all."""
    arena = torch.zeros(256, dtype=torch.uint8)
    with torch.no_grad():
        compiled = torch.compile(add_in_place, backend="aot_eager_decomp_partition", fullgraph=True, dynamic=False)
        with pytest.raises(Exception, match="views with different dtypes"):
            compiled(*tensors_of(arena, apart=False))
        x, positions = tensors_of(arena, apart=True)
        positions.copy_(torch.arange(8))
        compiled(x, positions)
    assert torch.equal(tensors_of(arena, apart=False)[0], torch.arange(8.0)[:, None].expand(8, 4)), "the same bytes"


ROW = RowSignature(inputs=("x", "positions"), outputs=(), scalars={}, style="returns")
PLAN = (
    TensorPlacement(dtype="fp32", shape=(8, 4), strides=(4, 1), offset=0),
    TensorPlacement(dtype="i64", shape=(8,), strides=(1,), offset=128),
)


def changed(placement: TensorPlacement, **fields: Any) -> TensorPlacement:
    return placement.model_copy(update=fields)


@pytest.mark.parametrize("kind", ["compile", "eager"])
def test_only_what_is_compiled_is_kept_by_row(kind: str) -> None:
    worker = Worker(None, CpuWorkerDevice())  # type: ignore[arg-type]
    worker.side, worker.function = SideOrders(kind=kind, op="add"), add_in_place  # type: ignore[arg-type]
    first = worker.call_of_row(ROW, PLAN)
    other = worker.call_of_row(ROW, [changed(PLAN[0], shape=(4, 4)), changed(PLAN[1], shape=(4,))])
    assert other is not first, "the same outputs, and other inputs"
    shifted = worker.call_of_row(ROW, [changed(PLAN[0], offset=4), PLAN[1]])
    assert shifted is not first, "compiled for an aligned address, it would copy what has another"
    moved = worker.call_of_row(ROW, [changed(PLAN[0], offset=512), PLAN[1]])
    assert (moved is first) == (kind == "compile"), "elsewhere in the arena, and aligned alike"
    assert (worker.call_of_row(ROW, PLAN) is first) == (kind == "compile")


@pytest.mark.parametrize(("asked", "renewed"), [([[1], [3]], {1, 3}), ([], set()), (None, {0, 1, 2, 3})])
def test_inputs_that_a_side_was_handed_are_other_tensors_then(asked: list[list[int]] | None, renewed: set[int]) -> None:
    worker = Worker(None, CpuWorkerDevice())  # type: ignore[arg-type]
    worker.slots = [[torch.full((2,), float(n)), None] for n in range(4)]
    before = [slot[0] for slot in worker.slots]
    for slots in asked or []:
        worker.note_handed_out(slots)
    if asked is None:
        worker.handed_out = None  # as if the loop did not report it
    worker.renew_slots()
    after = [slot[0] for slot in worker.slots]
    assert {n for n in range(4) if after[n] is not before[n]} == renewed
    assert all(new.data_ptr() == old.data_ptr() for new, old in zip(after, before, strict=True))
    worker.renew_slots()
    assert [slot[0] for slot in worker.slots] == after, "nothing was handed out since"


def test_a_loop_is_handed_every_slot() -> None:
    worker = Worker(None, CpuWorkerDevice())  # type: ignore[arg-type]
    worker.side = SideOrders(kind="eager")
    worker.slots = [[torch.zeros(1)], [torch.zeros(1)]]
    worker.open_loop()
    assert [list(slots) for slots in worker.handed_out or []] == [[0, 1]]


@pytest.mark.parametrize(("kind", "changes"), [("compile", True), ("compile", False), ("eager", True)])
def test_a_compiled_side_that_changes_inputs_gets_separate_tensors(kind: str, changes: bool) -> None:
    worker = Worker(None, CpuWorkerDevice())  # type: ignore[arg-type]
    worker.side, worker.function = SideOrders(kind=kind, op="add"), add_in_place  # type: ignore[arg-type]
    descriptor = os.memfd_create("arena")
    os.ftruncate(descriptor, 512)
    message = OpenRow(bytes=512, slots=2, pitch=256, plan=PLAN, row=ROW, changes_inputs=changes)
    worker.open_row(message, [descriptor])
    tensors = [tensor for slot in worker.slots for tensor in slot]
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    assert len(storages) == (4 if kind == "compile" and changes else 1)
    assert [tensor.data_ptr() - tensors[0].data_ptr() for tensor in tensors] == [0, 128, 256, 384]
