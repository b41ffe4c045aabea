"""BlockOutputs: what a block left, and how far it lies from what it must be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.judge.device.cuda.memory.region import OutputKeeper
from kernwright.judge.session.session import same_bytes
from kernwright.tasks.tensor import ConcreteTensor


@dataclass(frozen=True)
class BlockOutputs:
    """In the judge's memory: outputs by where they lie there, changed inputs by slot."""

    keeper: OutputKeeper
    specs: Mapping[str, ConcreteTensor]
    places: Sequence[int]
    changed: Mapping[str, Tensor]
    order: Sequence[int]

    @property
    def calls(self) -> int:
        return len(self.order)

    def value(self, name: str, call: int) -> Tensor:
        if name in self.changed:
            return self.changed[name][self.order[call]]
        return self.keeper.view(self._places_of(name)[call], self.specs[name])

    def _places_of(self, name: str) -> Sequence[int]:
        """Where the calls left it, in their order."""
        return self.places[list(self.specs).index(name) :: len(self.specs)]

    def distances(self, name: str, centre: Tensor) -> tuple[Tensor, Tensor]:
        """The largest and the RMS distance of each call's output from its oracle."""
        if name not in self.changed and self.specs[name].is_contiguous:
            from kernwright.judge.device.cuda.memory.distance import distances

            spec = self.specs[name]
            starts = [place // spec.item_bytes for place in self._places_of(name)]
            return distances(self.keeper.as_elements(spec), starts, centre)
        away = (self._stacked(name) - centre).flatten(1)
        norms = [torch.linalg.vector_norm(away, order, dim=1) for order in (math.inf, 2)]
        return norms[0], norms[1] / math.sqrt(max(1, away.shape[1]))

    def has_bytes(self, name: str, wanted: Tensor) -> bool:
        """Whether the outputs of all calls are these, byte by byte."""
        if name in self.changed or not self.specs[name].is_contiguous:
            return same_bytes(self._stacked(name), wanted)
        from kernwright.judge.device.cuda.memory.rows import ScatteredRows

        found = torch.zeros(1, dtype=torch.int32, device=wanted.device)
        ScatteredRows(self.keeper.memory, self._places_of(name), self.specs[name].span_bytes).compare(wanted, found)
        return not bool(found)

    def _stacked(self, name: str) -> Tensor:
        if name in self.changed:
            return self.changed[name][list(self.order)]
        return torch.stack([self.value(name, call) for call in range(self.calls)])
