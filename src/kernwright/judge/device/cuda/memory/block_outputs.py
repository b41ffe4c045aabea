"""BlockOutputs: the outputs of a block in the judge's memory, and their error."""

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
    """The outputs of a block: returned tensors at `places` in the keeper's copy, inputs changed in place by slot."""

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
        """Return the places of one output of all calls, in the order of the calls."""
        return self.places[list(self.specs).index(name) :: len(self.specs)]

    def distances(self, name: str, centre: Tensor) -> tuple[Tensor, Tensor]:
        """Return maximum and RMS error of each call's output relative to its oracle."""
        if name not in self.changed and self.specs[name].is_contiguous:
            from kernwright.judge.device.cuda.memory.distance import distances

            spec = self.specs[name]
            starts = [place // spec.item_bytes for place in self._places_of(name)]
            return distances(self.keeper.as_elements(spec), starts, centre)
        error = (self._stacked(name) - centre).flatten(1)
        norms = [torch.linalg.vector_norm(error, order, dim=1) for order in (math.inf, 2)]
        return norms[0], norms[1] / math.sqrt(max(1, error.shape[1]))

    def has_bytes(self, name: str, expected: Tensor) -> bool:
        """Return whether the outputs of all calls are bitwise equal to the expected ones."""
        if name in self.changed or not self.specs[name].is_contiguous:
            return same_bytes(self._stacked(name), expected)
        from kernwright.judge.device.cuda.memory.rows import ScatteredRows

        differs = torch.zeros(1, dtype=torch.int32, device=expected.device)
        rows = ScatteredRows(self.keeper.memory, self._places_of(name), self.specs[name].span_bytes)
        rows.compare(expected, differs)
        return not bool(differs)

    def _stacked(self, name: str) -> Tensor:
        if name in self.changed:
            return self.changed[name][list(self.order)]
        return torch.stack([self.value(name, call) for call in range(self.calls)])
