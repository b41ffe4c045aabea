"""The contents of slots, and whether they are unchanged. Without a GPU, Triton's interpreter runs the kernels."""

from __future__ import annotations

from collections.abc import Callable

CODE = """
import gc
import weakref
import numpy
import torch
from kernwright.judge.session.arena import Arena
from kernwright.judge.device.cuda.memory.held_slots import HeldSlots
from kernwright.judge.protocol.layout import lay_out
from kernwright.judge.session.session import WrongBehaviour
from kernwright.tasks.tensor import ConcreteTensor

device = "cuda" if torch.cuda.is_available() else "cpu"
SPECS = {
    "x": ConcreteTensor(shape=(3, 64), dtype="fp32", strides=(64, 1)),
    "gaps": ConcreteTensor(shape=(3, 5), dtype="bf16", strides=(8, 1)),
    "odd": ConcreteTensor(shape=(3, 5), dtype="bf16", strides=(5, 1), offset=3),
    "state": ConcreteTensor(shape=(7,), dtype="fp32", strides=(1,)),
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
layout = lay_out(SPECS, slots=6)
owner = numpy.zeros(layout.size, numpy.uint8)  # of a CPU's memory: who tells when the last view of it is gone
owned = weakref.ref(owner)
arena = Arena(layout, -1, torch.from_numpy(owner).to(device), lambda: None)
del owner
held = HeldSlots(arena, {"state"})


def contents(*front):
    drawn = {name: torch.randn(*front, *spec.shape, device=device) for name, spec in SPECS.items()}
    return {name: each.to(DTYPES[SPECS[name].dtype]) for name, each in drawn.items()}


def said(order, filled):
    try:
        held.refuse_damage(order, filled)
    except WrongBehaviour as wrong:
        return str(wrong)


def changed(slot, name, order, filled):
    place = arena.tensor(slot, name).view(-1) if name != "gaps" else arena.tensor(slot, name)[2]
    kept = place[-1].clone()
    place[-1] += 1
    found = said(order, filled)
    place[-1] = kept
    return found


SLOTS = [4, 0, 3]
placed = contents(3)
placed["x"][:, 0, 0] = float("nan")  # must stay the NaN that it was
held.place(placed, SLOTS)
for number, slot in enumerate(SLOTS):
    for name in SPECS:
        assert torch.equal(arena.tensor(slot, name).nan_to_num(9), placed[name][number].nan_to_num(9)), (slot, name)

filled = contents()
for slot in (1, 5):
    for name in SPECS:
        arena.tensor(slot, name).copy_(filled[name])
slots = {1: filled, 5: filled}
assert said([4, 1], slots) is None

# Inputs, in slots that were called and in others; slot 2 holds nothing of anybody's.
for name in ("x", "gaps", "odd"):
    for slot in (4, 0, 3, 1, 5):
        assert changed(slot, name, [4, 1], slots) == f"changed its input {name}", (slot, name)
    assert changed(2, name, [4, 1], slots) is None

# A call may change its own state, and no other's.
for slot, told in {4: None, 1: None, 0: "state", 3: "state", 5: "state"}.items():
    assert changed(slot, "state", [4, 1], slots) == (told and f"changed its input {told}"), slot

# Guards: between tensors, between slots, at the end.
first = layout.plan["gaps"].offset - 1
for byte in (first, layout.pitch + first, 5 * layout.pitch + layout.plan["x"].offset - 1, layout.size - 1):
    kept = arena.bytes[byte].clone()
    arena.bytes[byte] ^= 1
    assert said([4], slots) == f"wrote outside its outputs (canary at byte {byte} is overwritten)", byte
    arena.bytes[byte] = kept
assert said([4], slots) is None

# Dropped contents are not compared; contents that were placed again are.
held.drop_contents()
assert changed(4, "x", [4], {}) is None
assert changed(1, "x", [4], slots) == "changed its input x"
held.forget()
held.place({name: each[:1] for name, each in placed.items()}, [2])
assert changed(2, "x", [2], {}) == "changed its input x"
assert changed(4, "x", [2], {}) is None

held.close()
arena.bytes = torch.empty(0)
gc.collect()
assert owned() is None  # nothing keeps the memory that goes
print("checked")
"""


def test_slots_are_filled_and_every_change_that_no_call_may_make_is_found(said_by: Callable[[str], str]) -> None:
    assert said_by(CODE) == "checked"
