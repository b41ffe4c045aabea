"""Answer: what one implementation replies to a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernwright.core.op import Contract
from kernwright.runtime.call import Call
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.library import NotBuilt
from kernwright.runtime.preference import Backend
from kernwright.runtime.triton.tuning import Found


@dataclass(frozen=True)
class Answer:
    """The reply of one implementation to a call: it takes the call, or the reason why it does not.

    `configured` is the launch configuration of a Triton kernel. `wanted` is the backend that the call asks for.
    `unbuilt` is the error of an earlier build, if the library of this implementation could not be built.
    """

    implementation: Implementation
    refusal: str | None
    configured: Found | None = None
    wanted: Backend | None = None
    unbuilt: NotBuilt | None = None

    @classmethod
    def of(
        cls,
        own: Implementation,
        call: Call,
        contract: Contract | None,
        configured: Found | None = None,
        wanted: Backend | None = None,
    ) -> Answer:
        """Ask an implementation whether it takes a call."""
        try:
            return cls(own, own.refusal(call, contract), configured, wanted)
        except NotBuilt as problem:
            return cls(own, problem.in_short, configured, wanted, problem)

    @property
    def fits(self) -> bool:
        """Return whether this implementation takes the call and has the wanted backend."""
        return self.refusal is None and self.wanted in (None, self.implementation.backend)

    def __str__(self) -> str:
        how = f", {self.configured}" if self.configured and not self.refusal else ""
        return f"{self.implementation}: {self.refusal or 'takes it'}{how}"


def raise_unbuilt(refusals: Sequence[Answer]) -> None:
    """Raise the error of the first build that failed, if any: its remedy is better than that of a requirement."""
    for answer in refusals:
        if answer.unbuilt is not None:
            raise answer.unbuilt from None  # the call that found it out adds no further reason
