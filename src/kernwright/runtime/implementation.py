"""Implementation: one way to run an op, with requirements that can explain themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from kernwright.core.op import Contract
from kernwright.runtime.call import Call
from kernwright.runtime.library import Library
from kernwright.runtime.preference import Backend
from kernwright.runtime.target import Target

Requirement = Callable[[Call], str | None]  # returns why a call is not taken, or None
Launch = Callable[..., bool]  # a foreign function: arguments by position, then outputs; returns False if it refuses


@dataclass(frozen=True)
class Implementation:
    """One way to run an op.

    `load` returns the function, which has the op's signature and `out=`. Nothing is imported or built before.
    `requires` are the requirements of a call, in the order in which they are checked. `launch`, if given, returns the
    foreign function for a device and a dtype, or None where it could be mistaken for that of another device. The
    foreign function takes the op's arguments by position, then the outputs; it checks them itself and returns whether
    it ran. `libraries` returns the native libraries that a target needs.
    """

    backend: Backend
    contract: Contract
    load: Callable[[], Callable[..., Any]]
    requires: tuple[Requirement, ...] = ()
    launch: Callable[[torch.device, torch.dtype], Launch | None] | None = None
    libraries: Callable[[Target], list[Library]] = lambda target: []

    def refusal(self, call: Call, contract: Contract | None = None) -> str | None:
        """Return the first requirement that does not hold, in words; None if the call is taken."""
        if contract == "exact" and self.contract != "exact":
            return f"is {self.contract}, where exact was asked for"
        if self.backend != "torch" and call.needs_gradient:
            return "an input needs a gradient, which only the reference has"
        if self.backend != "torch" and (name := next((n for n, own in call.tensors.items() if own.is_neg()), None)):
            return f"{name} has torch's negative bit, which its memory does not show"
        return next((why for requirement in self.requires if (why := requirement(call))), None)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """Return the function, which is loaded once."""
        return self.load()

    def __str__(self) -> str:
        return f"{self.backend} ({self.contract})"
