"""The layout of tensors in a buffer: they are separate, aligned or offset as requested, and guarded on both sides."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kernwright.judge.protocol.layout import ALIGNMENT, GUARD_BYTES, Placement, lay_out, slot_bytes
from kernwright.judge.protocol.orders import TensorPlacement
from kernwright.tasks.tensor import ConcreteTensor, contiguous_strides

dtypes = st.sampled_from(["bf16", "fp32", "fp64", "u8"])


@st.composite
def tensors(draw: st.DrawFn) -> ConcreteTensor:
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=0, max_size=3)))
    strides = contiguous_strides(shape)
    if shape and draw(st.booleans()):
        strides = tuple(stride * draw(st.integers(1, 3)) for stride in strides)
    return ConcreteTensor(shape=shape, dtype=draw(dtypes), strides=strides, offset=draw(st.integers(0, 300)))


@given(st.dictionaries(st.sampled_from("abcd"), tensors(), min_size=1), st.integers(1, 5))
def test_tensors_and_guards_tile_the_buffer(named: dict[str, ConcreteTensor], slots: int) -> None:
    layout = lay_out(named, slots)
    placed = [layout.place(slot, name) for slot in range(slots) for name in named]
    taken = [(p.offset, p.offset + p.tensor.span_bytes) for p in placed]
    zones = sorted([*taken, *layout.guards])
    assert zones[0][0] == 0
    assert zones[-1][1] == layout.size
    for (_, end), (start, _) in itertools.pairwise(zones):
        assert end == start, "a byte that is neither tensor nor guard, or both"
    assert all((p.offset - p.tensor.offset * p.tensor.item_bytes) % ALIGNMENT == 0 for p in placed)
    assert all(end - start >= GUARD_BYTES for start, end in layout.guards)
    assert len(layout.guards) == len(taken) + 1
    guard_starts, guard_ends = {s for s, _ in layout.guards}, {e for _, e in layout.guards}
    assert all(start in guard_ends and end in guard_starts for start, end in taken)
    assert layout.size == slots * slot_bytes(named) + GUARD_BYTES


def test_a_placement_travels_as_plain_data() -> None:
    tensor = ConcreteTensor(shape=(2, 3), dtype="bf16", strides=(4, 1))
    message = Placement("x", tensor, 512).as_message()
    assert message == TensorPlacement(offset=512, shape=(2, 3), strides=(4, 1), dtype="bf16")
