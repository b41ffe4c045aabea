"""Rows of memory, against a naive twin. Without a GPU, Triton's interpreter runs the kernels."""

from __future__ import annotations

from collections.abc import Callable

CODE = """
import itertools
import torch
from kernwright.judge.device.cuda.memory.rows import ScatteredRows, on_device

device = "cuda" if torch.cuda.is_available() else "cpu"
PITCH = 40_960
SIZES = (32_768, 256), (10_006, 256), (10_006, 64), (7, 3), (8, 8), (64, 0), (64, 6)
for (length, at), in_slots in itertools.product(SIZES, (False, True)):
    memory = torch.randint(0, 256, (6 * PITCH,), dtype=torch.uint8, device=device)
    before = memory.clone()
    starts = [slot * PITCH + at for slot in (4, 0, 3)]
    contents = torch.randint(0, 256, (3, length), dtype=torch.uint8, device=device)
    slots = on_device((4, 0, 3), memory.device)
    rows = ScatteredRows(memory, starts, length)
    if in_slots:
        rows = ScatteredRows.in_slots(memory, slots, PITCH, at, length)
    rows.write(contents)
    for start, content in zip(starts, contents):
        before[start : start + length] = content
    assert torch.equal(memory, before), (length, at)

    def differs(source):
        found = torch.zeros(1, dtype=torch.int32, device=device)
        rows.compare(source, found)
        return bool(found)

    assert not differs(contents)
    for row, byte in ((0, 0), (1, length - 1), (2, length // 2)):
        memory[starts[row] + byte] ^= 64
        assert differs(contents), (length, at, row, byte)
        memory[starts[row] + byte] ^= 64
    memory[starts[0] - 1] ^= 1  # beside a row
    memory[starts[2] + length] ^= 1
    assert not differs(contents)

    for start in starts:  # one content for all of them
        memory[start : start + length] = contents[1]
    assert not differs(contents[1])
    memory[starts[2]] ^= 1
    assert differs(contents[1])
ScatteredRows(memory, [], 16).write(contents)
print("checked")
"""


def test_rows_are_written_and_compared_to_the_byte(said_by: Callable[[str], str]) -> None:
    assert said_by(CODE) == "checked"
