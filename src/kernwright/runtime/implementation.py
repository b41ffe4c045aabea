"""Implementation: one way to run an op. What it asks of a call it can say in words."""

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

Requirement = Callable[[Call], str | None]  # why it does not hold of a call, or None where it holds
Launch = Callable[..., bool]  # a foreign function: all arguments by position, then the outputs; False: it refuses


@dataclass(frozen=True)
class Implementation:
    """`load` gives the function: the op's own signature, and `out=`. Nothing is imported or built before.

    `launch`, where there is one, gives the bare foreign function for a device and a dtype, unless it might be mistaken
    for another device's. It takes the op's arguments by position and then the outputs, checks them itself, and answers
    whether it ran: so a call that ends there needs no further look from Python. `libraries` returns the native
    libraries that it needs on a target.
    """

    backend: Backend
    contract: Contract
    load: Callable[[], Callable[..., Any]]
    requires: tuple[Requirement, ...] = ()
    launch: Callable[[torch.device, torch.dtype], Launch | None] | None = None
    libraries: Callable[[Target], list[Library]] = lambda target: []

    def refusal(self, call: Call, contract: Contract | None = None) -> str | None:
        """The first requirement that does not hold, in words."""
        if contract == "exact" and self.contract != "exact":
            return f"is {self.contract}, where exact was asked for"
        if self.backend != "torch" and call.needs_gradient:
            return "an input needs a gradient, which only the reference has"
        if self.backend != "torch" and (name := next((n for n, own in call.tensors.items() if own.is_neg()), None)):
            return f"{name} has torch's negative bit, which its memory does not show"
        return next((why for requirement in self.requires if (why := requirement(call))), None)

    @cached_property
    def function(self) -> Callable[..., Any]:
        return self.load()

    def __str__(self) -> str:
        return f"{self.backend} ({self.contract})"
