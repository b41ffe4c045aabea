"""Implementations that families are made of: CUDA libraries, one for each dtype, and Triton modules.

A CUDA library holds one dtype, so that a first call waits only for the kernels that it may need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from kernwright.core.op import Contract, Op
from kernwright.runtime.call import Call
from kernwright.runtime.gpu import architecture, gpus_are_alike
from kernwright.runtime.implementation import Implementation, Launch, Requirement
from kernwright.runtime.library import Library
from kernwright.runtime.outputs import Taken, from_launch, from_module, taken
from kernwright.runtime.requirements import on_cuda, triton_there
from kernwright.runtime.target import Target

TYPES = {torch.float32: "kFloat32", torch.float16: "kFloat16", torch.bfloat16: "kBFloat16"}
WORDS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
NATIVE = Path(__file__).parent / "native"
CPU_HEADERS = tuple(NATIVE / f"{name}.h" for name in ("tensors", "overlaps", "reader", "folding", "parameters"))
CUDA_HEADERS = (
    *CPU_HEADERS,
    *(NATIVE / name for name in ("calling.h", "allocation.cuh", "elements.cuh", "launching.cuh", "totals.cuh")),
)
TOKEN_HEADERS = (
    *CUDA_HEADERS,
    *(NATIVE / name for name in ("token_norm.cuh", "token_rows.cuh", "token_statistics.cuh", "token_variant.h")),
)


def sources(module: str, *names: str) -> tuple[Path, ...]:
    """Return files of the family whose module (`__file__`) is given. A library's digest covers everything it lists."""
    return tuple(Path(module).with_name(name) for name in names)


@dataclass(frozen=True, eq=False)  # compared by identity: comparing sources would take longer than a call
class CudaOp:
    """The CUDA libraries of an op, compiled with KERNWRIGHT_TYPE, the dtype of the op's first tensor, and own macros.

    The foreign function takes the op's tensors and scalars by position, then the outputs, and returns whether it took
    the call. `shared` is the name of a library that holds several ops.
    """

    function: str
    sources: tuple[Path, ...]
    macros: tuple[tuple[str, str], ...] = ()
    shared: str = ""

    def library(self, dtype: torch.dtype) -> Library:
        name = () if self.shared else (("KERNWRIGHT_OP", self.function),)
        macros = (("KERNWRIGHT_TYPE", TYPES[dtype]), *name, *self.macros)
        return Library(f"{self.shared or self.function}_{WORDS[dtype]}", self.sources, macros)

    def libraries(self, target: Target) -> list[Library]:
        return [self.library(dtype) for dtype in TYPES] if target.is_cuda else []

    def library_there(self, call: Call) -> str | None:
        return self.library(call.first.dtype).unavailable(architecture(call.first.device))

    def launch(self, device: torch.device, dtype: torch.dtype) -> Launch:
        return _loaded(self, architecture(device), dtype)

    def shortcut(self, device: torch.device, dtype: torch.dtype) -> Launch | None:
        """Return the function for the fast path. The library cannot tell a GPU of another architecture."""
        return self.launch(device, dtype) if gpus_are_alike() else None

    def run(self, op: Op) -> Callable[..., Any]:
        return from_launch(op, lambda tensors, _: self.launch(tensors[0].device, tensors[0].dtype))

    def implementation(self, op: Op, *requires: Requirement) -> Implementation:
        return Implementation(
            backend="cuda",
            contract="close",
            load=partial(self.run, op),
            requires=(on_cuda, *requires, self.library_there),
            launch=self.shortcut,
            libraries=self.libraries,
        )


@cache
def _loaded(own: CudaOp, target: Target, dtype: torch.dtype) -> Launch:
    return getattr(own.library(dtype).load(target), own.function)  # type: ignore[no-any-return]


def triton(
    module: str, op: Op, *requires: Requirement, contract: Contract = "close", outputs: Taken = taken
) -> Implementation:
    """Return the implementation by the function of the op's name in `<family>/triton.py`, which is imported when needed.

    `module` is the name of the family's module (`__name__`).
    """
    own = f"{module.rpartition('.')[0]}.triton"
    return Implementation("triton", contract, partial(from_module, own, op, outputs), (triton_there, *requires))
