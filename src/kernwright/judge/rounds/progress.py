"""Progress: how far a judgement has come."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receiver of the judge's progress."""

    def phase(self, what: str, steps: int) -> None: ...

    def step(self, note: str) -> None: ...


class NoProgress:
    """Receiver that shows nothing."""

    def phase(self, what: str, steps: int) -> None:
        pass

    def step(self, note: str) -> None:
        pass
