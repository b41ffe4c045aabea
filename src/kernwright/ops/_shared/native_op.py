"""NativeOp: the CUDA libraries of one op, one a dtype, and how their foreign function becomes an implementation.

One a dtype: a first call waits for the kernels that it may need, not for all of them. The function is called as the op
is, takes the op's tensors and scalars by position and then the outputs, and answers whether it took the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from kernwright.core.op import Op
from kernwright.runtime.call import Call
from kernwright.runtime.gpu import architecture, gpus_are_alike
from kernwright.runtime.implementation import Implementation, Launch, Requirement
from kernwright.runtime.library import Library
from kernwright.runtime.outputs import Promise, from_launch
from kernwright.runtime.requirements import on_cuda
from kernwright.runtime.target import Target

TYPES = {torch.float32: "kFloat32", torch.float16: "kFloat16", torch.bfloat16: "kBFloat16"}
WORDS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True, eq=False)  # each is one of its own, and found by that: to compare sources would take longer
class NativeOp:
    """`sources` are compiled with KERNWRIGHT_TYPE, the dtype of the op's first tensor, and the op's own macros."""

    op: str
    sources: tuple[Path, ...]
    macros: tuple[tuple[str, str], ...] = ()
    shared: str = ""  # the name of a library that holds other ops too

    def library(self, dtype: torch.dtype) -> Library:
        macros = (("KERNWRIGHT_TYPE", TYPES[dtype]), *self.macros)
        return Library(f"{self.shared or self.op}_{WORDS[dtype]}", self.sources, macros)

    def libraries(self, target: Target) -> list[Library]:
        """All that the op needs on a target."""
        return [self.library(dtype) for dtype in TYPES] if target.is_cuda else []

    def library_there(self, call: Call) -> str | None:
        return self.library(call.first.dtype).unavailable(architecture(call.first.device))

    def launch(self, device: torch.device, dtype: torch.dtype) -> Launch:
        return _loaded(self, architecture(device), dtype)

    def shortcut(self, device: torch.device, dtype: torch.dtype) -> Launch | None:
        """For calls whose tensors nobody looks at before: the library cannot tell a GPU of another architecture."""
        return self.launch(device, dtype) if gpus_are_alike() else None

    def function(self, op: Op, promise: Promise) -> Callable[..., Any]:
        return from_launch(op, promise, lambda tensors, _: self.launch(tensors[0].device, tensors[0].dtype))

    def implementation(self, op: Op, promise: Promise, *requires: Requirement) -> Implementation:
        load = partial(self.function, op, promise)
        return Implementation("cuda", "close", load, (on_cuda, *requires, self.library_there), self.shortcut)


@cache
def _loaded(own: NativeOp, target: Target, dtype: torch.dtype) -> Launch:
    return getattr(own.library(dtype).load(target), own.op)  # type: ignore[no-any-return]
