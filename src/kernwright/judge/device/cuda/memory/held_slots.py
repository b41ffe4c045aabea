"""HeldSlots: the contents that the judge placed in a row's slots on a GPU, and the check that they are unchanged.

Before a block, one kernel per input fills the slots. After the block, all guards and inputs are compared with a single
synchronization.
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
    from kernwright.judge.device.cuda.memory.rows import ScatteredRows  # this module imports Triton


class HeldSlots:
    """The slots of one arena. `changing` are the inputs that a call changes in place."""

    def __init__(self, arena: Arena, changing: Collection[str]) -> None:
        self._arena, self._changing = arena, frozenset(changing)
        self._placed: tuple[dict[str, Tensor], list[int]] | None = None
        self._rows_cache: dict[tuple[str, tuple[int, ...]], ScatteredRows] = {}  # kept from the fill to the comparison
        self._index_cache: dict[tuple[int, ...], Tensor] = {}

    def place(self, contents: dict[str, Tensor], slots: Sequence[int]) -> None:
        """Write stacked contents into slots, with one copy per tensor."""
        for name, content in contents.items():
            if self._is_contiguous(name):
                self._rows(name, slots).write(content)
            else:
                self._arena.stacked(name).index_copy_(0, self._index(slots), content)
        self._placed = (contents, list(slots))

    def refuse_damage(self, order: Sequence[int], filled: Mapping[int, Inputs]) -> None:
        """Raise if a block of these calls changed guards or inputs. `filled` has contents by slot."""
        expected = [(name, slots, content) for name, slots, content in self._expected(set(order), filled) if slots]
        flags = torch.zeros(1 + len(expected), dtype=torch.int32, device=self._arena.bytes.device)
        canaries, zones = self._guards
        for zone in zones:
            zone.compare(canaries[: zone.length], flags[:1])
        for number, (name, slots, content) in enumerate(expected, 1):
            if self._is_contiguous(name):
                self._rows(name, slots).compare(content, flags[number : number + 1])
            else:
                found = self._arena.stacked(name)[self._index(slots)]
                flags[number] = not same_bytes(found, content.expand_as(found))
        broken, *changed = flags.tolist()
        if broken:
            offset = self._arena.broken_guard()
            raise WrongBehaviour(f"wrote outside its outputs (canary at byte {offset} is overwritten)")
        for (name, _, _), is_changed in zip(expected, changed, strict=True):
            if is_changed:
                raise WrongBehaviour(f"changed its input {name}")

    def drop_contents(self) -> None:
        """Free contents that were compared, before the next ones are drawn."""
        self._placed = None

    def forget(self) -> None:
        """Forget the contents of all slots before they are filled again."""
        self.drop_contents()
        self._rows_cache.clear()
        self._index_cache.clear()

    def close(self) -> None:
        """Drop all views of the arena's memory, so that it can be freed."""
        self.forget()
        self.__dict__.pop("_guards", None)

    def _expected(self, called: set[int], filled: Mapping[int, Inputs]) -> Iterator[tuple[str, list[int], Tensor]]:
        """Yield the name of an input, the slots that must hold it, and their contents, stacked or one for all."""
        if self._placed is not None:
            contents, slots = self._placed
            uncalled = [number for number, slot in enumerate(slots) if slot not in called]
            for name, content in contents.items():
                if name not in self._changing:
                    yield name, slots, content
                elif uncalled:
                    yield name, [slots[number] for number in uncalled], content[uncalled]
        by_content: dict[int, list[int]] = {}
        for slot, inputs in filled.items():
            by_content.setdefault(id(inputs), []).append(slot)
        for slots in by_content.values():
            for name, content in filled[slots[0]].items():
                unchanged = [slot for slot in slots if slot not in called] if name in self._changing else slots
                yield name, unchanged, content

    def _is_contiguous(self, name: str) -> bool:
        return self._arena.layout.plan[name].tensor.is_contiguous

    def _index(self, slots: Sequence[int]) -> Tensor:
        """Return the slot numbers as a tensor on the device, cached for all tensors of the row."""
        from kernwright.judge.device.cuda.memory.rows import on_device

        key = tuple(slots)
        if key not in self._index_cache:
            self._index_cache[key] = on_device(key, self._arena.bytes.device)
        return self._index_cache[key]

    def _rows(self, name: str, slots: Sequence[int]) -> ScatteredRows:
        from kernwright.judge.device.cuda.memory.rows import ScatteredRows

        key = name, tuple(slots)
        if key not in self._rows_cache:
            layout, placed = self._arena.layout, self._arena.layout.plan[name]
            numbers, length = self._index(slots), placed.tensor.span_bytes
            self._rows_cache[key] = ScatteredRows.in_slots(
                self._arena.bytes, numbers, layout.pitch, placed.offset, length
            )
        return self._rows_cache[key]

    @functools.cached_property
    def _guards(self) -> tuple[Tensor, list[ScatteredRows]]:
        """The canary bytes, and the guard zones grouped by length."""
        from kernwright.judge.device.cuda.memory.rows import ScatteredRows

        layout, memory = self._arena.layout, self._arena.bytes
        tail, end = layout.tail
        by_length = {end - tail: [tail]}  # most guards have the same length and are compared together
        for offset, length in layout.gaps:
            by_length.setdefault(length, []).extend(slot * layout.pitch + offset for slot in range(layout.count))
        canaries = torch.full((max(by_length),), CANARY, dtype=torch.uint8, device=memory.device)
        return canaries, [ScatteredRows(memory, starts, length) for length, starts in by_length.items()]
