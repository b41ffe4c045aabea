"""HeldSlots: what the judge put into a row's slots on a GPU, and whether they still hold it.

Before a block every input goes into its slots by one kernel; after it guards and inputs are looked at together, so that
the judge waits for the GPU once.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernwright.judge.numerics.inputs import Inputs
from kernwright.judge.session.arena import CANARY, Arena
from kernwright.judge.session.session import WrongBehaviour, same_bytes

if TYPE_CHECKING:
    from kernwright.judge.device.cuda.memory.rows import ScatteredRows  # which imports Triton


class HeldSlots:
    """The slots of one arena. `changing`: inputs that a call changes by right."""

    def __init__(self, arena: Arena, changing: Collection[str]) -> None:
        self._arena, self._changing = arena, frozenset(changing)
        self._placed: tuple[dict[str, Tensor], list[int]] | None = None
        self._known_rows: dict[tuple[str, tuple[int, ...]], ScatteredRows] = {}  # from being filled to being looked at
        self._known_slots: dict[tuple[int, ...], Tensor] = {}

    def place(self, contents: dict[str, Tensor], slots: Sequence[int]) -> None:
        """Contents into slots, all of them in one copy a tensor."""
        for name, content in contents.items():
            if self._is_contiguous(name):
                self._rows(name, slots).write(content)
            else:
                self._arena.stacked(name).index_copy_(0, self._index(slots), content)
        self._placed = (contents, list(slots))

    def look(self, order: Sequence[int], filled: Mapping[int, Inputs]) -> None:
        """After a block of these calls. `filled`: contents of slots that were filled one by one."""
        held = [(name, slots, content) for name, slots, content in self._expected(set(order), filled) if slots]
        flags = torch.zeros(1 + len(held), dtype=torch.int32, device=self._arena.bytes.device)
        canaries, zones = self._guards
        for zone in zones:
            zone.compare(canaries[: zone.length], flags[:1])
        for number, (name, slots, content) in enumerate(held, 1):
            if self._is_contiguous(name):
                self._rows(name, slots).compare(content, flags[number : number + 1])
            else:
                found = self._arena.stacked(name)[self._index(slots)]
                flags[number] = not same_bytes(found, content.expand_as(found))
        broken, *changed = flags.tolist()
        if broken:
            raise WrongBehaviour(f"wrote outside its outputs (canary at byte {self._arena.broken_guard()} is gone)")
        for (name, _, _), is_changed in zip(held, changed, strict=True):
            if is_changed:
                raise WrongBehaviour(f"changed its input {name}")

    def let_go(self) -> None:
        """Of contents that have been looked at: the next ones are drawn before any memory is free otherwise."""
        self._placed = None

    def forget(self) -> None:
        """Before slots are filled anew: what they still hold counts for nothing."""
        self.let_go()
        self._known_rows.clear()
        self._known_slots.clear()

    def close(self) -> None:
        """Rows and guards see the arena's memory: without this it would not go."""
        self.forget()
        self.__dict__.pop("_guards", None)

    def _expected(self, asked: set[int], filled: Mapping[int, Inputs]) -> Iterator[tuple[str, list[int], Tensor]]:
        """Inputs, the slots that must hold them, and what these hold: one each, or one for all."""
        if self._placed is not None:
            contents, slots = self._placed
            spared = [number for number, slot in enumerate(slots) if slot not in asked]
            for name, content in contents.items():
                if name not in self._changing:
                    yield name, slots, content
                elif spared:
                    yield name, [slots[number] for number in spared], content[spared]
        by_content: dict[int, list[int]] = {}
        for slot, inputs in filled.items():
            by_content.setdefault(id(inputs), []).append(slot)
        for slots in by_content.values():
            for name, content in filled[slots[0]].items():
                kept = [slot for slot in slots if slot not in asked] if name in self._changing else slots
                yield name, kept, content

    def _is_contiguous(self, name: str) -> bool:
        return self._arena.layout.plan[name].tensor.is_contiguous

    def _index(self, slots: Sequence[int]) -> Tensor:
        """Their numbers on the device, once for all tensors."""
        from kernwright.judge.device.cuda.memory.rows import on_device

        key = tuple(slots)
        if key not in self._known_slots:
            self._known_slots[key] = on_device(key, self._arena.bytes.device)
        return self._known_slots[key]

    def _rows(self, name: str, slots: Sequence[int]) -> ScatteredRows:
        from kernwright.judge.device.cuda.memory.rows import ScatteredRows

        key = name, tuple(slots)
        if key not in self._known_rows:
            layout, placed = self._arena.layout, self._arena.layout.plan[name]
            numbers, length = self._index(slots), placed.tensor.span_bytes
            self._known_rows[key] = ScatteredRows.in_slots(
                self._arena.bytes, numbers, layout.pitch, placed.offset, length
            )
        return self._known_rows[key]

    @functools.cached_property
    def _guards(self) -> tuple[Tensor, list[ScatteredRows]]:
        """What guards hold, and where they lie."""
        from kernwright.judge.device.cuda.memory.rows import ScatteredRows

        layout, memory = self._arena.layout, self._arena.bytes
        tail, end = layout.tail
        by_length = {end - tail: [tail]}  # most are of one length, and looked at together
        for offset, length in layout.gaps:
            by_length.setdefault(length, []).extend(slot * layout.pitch + offset for slot in range(layout.count))
        canaries = torch.full((max(by_length),), CANARY, dtype=torch.uint8, device=memory.device)
        return canaries, [ScatteredRows(memory, starts, length) for length, starts in by_length.items()]
