"""Detection of slots that calls have changed, against a naive twin. Without a GPU, Triton's interpreter runs the
kernel."""

from __future__ import annotations

from collections.abc import Callable

CODE = """
import torch
from kernwright.judge.device.cuda.memory import changed_slots
from kernwright.judge.device.cuda.memory.changed_slots import ChangedSlots
from kernwright.judge.device.problems import DeviceFull

device = "cuda" if torch.cuda.is_available() else "cpu"
PITCH = 4608
copied = []
kernel = changed_slots._copy_cyclic


class Counted:
    def __getitem__(self, grid):
        def launch(target, source, words, source_words, **more):
            copied.append(words)
            kernel[grid](target, source, words, source_words, **more)
        return launch


changed_slots._copy_cyclic = Counted()
for counts in ((1, 5), (5, 1), (3, 3), (2, 7, 4)):
    keeper = ChangedSlots(device)
    sides = [torch.randint(0, 256, (count * PITCH,), dtype=torch.uint8, device=device) for count in counts]
    for side in sides:
        keeper.expect(side.numel())
    most = max(counts) * PITCH
    for side in sides:
        kept = keeper.secure_block(side)
        assert torch.equal(kept, side), counts
        assert kept.data_ptr() != side.data_ptr()
        # As much as of the side that has most: the rest is the same slots again.
        assert copied.pop() * 8 == most
        again = side.repeat(-(-most // side.numel()))[:most]
        assert torch.equal(keeper._buffer[:most], again), counts
        before = side.clone()
        side.add_(1)
        assert torch.equal(kept, before)  # a copy, not a view
    big = max(sides, key=len)
    slots = [len(big) // PITCH - 1, 0]
    kept = keeper.secure_some(big, PITCH, slots[:1])
    at = slice(slots[0] * PITCH, (slots[0] + 1) * PITCH)
    assert torch.equal(kept[at], big[at])
    assert keeper.secure_some(big, PITCH, []).numel() == big.numel()
    assert torch.equal(keeper.secure_some(big, PITCH, slots)[:PITCH], big[:PITCH])

    keeper.begin()  # another row, whose side never said how much it has
    small = torch.randint(0, 256, (2 * PITCH,), dtype=torch.uint8, device=device)
    assert torch.equal(keeper.secure_block(small), small)
    assert copied.pop() * 8 == small.numel()  # nothing of the row before it

empty = torch.empty


def no_memory(*sizes, **named):
    raise torch.OutOfMemoryError


torch.empty = no_memory
try:
    keeper.expect(10**9)
except DeviceFull as full:
    assert "no 0.9 GiB" in str(full)
else:
    raise AssertionError("no memory, and no word of it")
torch.empty = empty
print("checked")
"""


def test_every_side_s_slots_are_copied_and_as_many_bytes_of_each(said_by: Callable[[str], str]) -> None:
    assert said_by(CODE) == "checked"
