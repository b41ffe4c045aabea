"""FusedOp: an op with its implementations, its check, and everything that is derived from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernwright.core.op import Op
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.library import Library
from kernwright.runtime.outputs import Allocate, declare_outputs
from kernwright.runtime.public_call.fast_path import fast_path
from kernwright.runtime.public_call.public_function import Option, public_function
from kernwright.runtime.public_call.slow_path import SlowPath
from kernwright.runtime.target import Target


@dataclass(frozen=True, eq=False, kw_only=True)
class FusedOp:
    """An op of a family.

    `implementations` come best first; an op without any runs its reference, and torch.compile traces that. `check`
    raises BadArgument for arguments that no implementation could take. `allocate` makes the outputs of an eager call
    where they differ from the first tensor. `option` is a keyword that only the public function has. With
    `derives_outputs`, `allocate` holds on the fast path only, and elsewhere the definition tells the outputs.
    """

    op: Op
    implementations: tuple[Implementation, ...]
    check: Callable[[Call], None]
    allocate: Allocate | None = None
    option: Option | None = None
    derives_outputs: bool = False

    def __post_init__(self) -> None:
        if self.implementations and not self.derives_outputs:
            declare_outputs(self.op, self.allocate)

    @cached_property
    def dispatcher(self) -> Dispatcher:
        """Return the dispatcher, which is made once."""
        return Dispatcher(self.op, self.implementations, self.check, self.option)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """Return the public function. The op of torch.library is registered when this is first read."""
        if not self.implementations:
            return public_function(self.op, self.dispatcher.run_positional, self.option)
        return public_function(self.op, fast_path(SlowPath(self.dispatcher), self.allocate), self.option)

    def libraries(self, target: Target) -> list[Library]:
        """Return the native libraries of all implementations for a target."""
        return [library for own in self.implementations for library in own.libraries(target)]
