"""Explanation: the implementation that a call would run, and why no other one."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.runtime.choice.answer import Answer
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.preference import Backend


@dataclass(frozen=True)
class Explanation:
    """The implementation that a call would run, and the answer of each implementation, best first.

    `chosen` is None where the call would raise an error. `preferred` is the backend that was asked for. `print` shows
    all of it as text.
    """

    op: str
    chosen: Implementation | None
    preferred: Backend | None
    answers: tuple[Answer, ...]

    def __str__(self) -> str:
        what = str(self.chosen) if self.chosen else "an error"
        wish = f", as {self.preferred} is preferred" if self.preferred else ""
        if not self.chosen and not self.preferred:
            wish = ", as strict forbids the reference"
        return "\n".join([f"{self.op}: {what}{wish}", *(f"  {answer}" for answer in self.answers)])
