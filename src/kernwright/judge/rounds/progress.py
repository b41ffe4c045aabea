"""Progress: how far a judgement has come."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Where the judge says how far it is."""

    def phase(self, what: str, steps: int) -> None: ...

    def step(self, note: str) -> None: ...
