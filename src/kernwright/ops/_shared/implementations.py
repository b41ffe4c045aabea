"""Implementations that families are made of: CUDA libraries, one for each dtype, and Triton modules.

A CUDA library holds one dtype, so that a first call waits only for the kernels that it may need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
SUM_HEADERS = (*CUDA_HEADERS, NATIVE / "sums.h")
ROW_HEADERS = (*CUDA_HEADERS, NATIVE / "rows.h")
TOKEN_HEADERS = (
    *CUDA_HEADERS,
    *(NATIVE / name for name in ("token_norm.cuh", "token_rows.cuh", "token_statistics.cuh", "token_variant.h")),
)


def sources(module: str, *names: str) -> tuple[Path, ...]:
    """Return files of the family whose module (`__file__`) is given. A library's digest covers everything it lists."""
    return tuple(Path(module).with_name(name) for name in names)


Types = tuple[torch.dtype, ...]


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

    def kinds(self) -> list[Types]:
        """Return the dtypes of each library."""
        return [(dtype,) for dtype in TYPES]

    def types(self, tensors: Sequence[Any]) -> Types:
        """Return the dtypes of the library that takes these tensors."""
        return (tensors[0].dtype,)

    def library(self, dtype: torch.dtype, *others: torch.dtype) -> Library:
        name = () if self.shared else (("KERNWRIGHT_OP", self.function),)
        macros = (("KERNWRIGHT_TYPE", TYPES[dtype]), *name, *self.macros)
        return Library(f"{self.shared or self.function}_{WORDS[dtype]}", self.sources, macros)

    def libraries(self, target: Target) -> list[Library]:
        return [self.library(*kind) for kind in self.kinds()] if target.is_cuda else []

    def library_there(self, call: Call) -> str | None:
        given = [call.arguments[parameter.name] for parameter in call.op.tensor_parameters]
        return self.library(*self.types(given)).unavailable(architecture(call.first.device))

    def launch(self, device: torch.device, *types: torch.dtype) -> Launch:
        """Return the foreign function, from a library that is built and loaded if need be."""
        key = (self, architecture(device), types)
        if (found := _loaded.get(key)) is None:
            found = _loaded[key] = getattr(self.library(*types).load(key[1]), self.function)
        return found

    def shortcut(self, device: torch.device, dtype: torch.dtype) -> Launch | None:
        """Return the function for the fast path, if the library for one dtype is loaded.

        The library refuses other dtypes and devices, but it cannot tell a GPU of another architecture.
        """
        types = (dtype,) * len(self.kinds()[0])
        return _loaded.get((self, architecture(device), types)) if gpus_are_alike() else None

    def run(self, op: Op, outputs: Taken = taken) -> Callable[..., Any]:
        return from_launch(op, lambda tensors, _: self.launch(tensors[0].device, *self.types(tensors)), outputs)

    def implementation(
        self, op: Op, *requires: Requirement, contract: Contract = "close", outputs: Taken = taken
    ) -> Implementation:
        return Implementation(
            backend="cuda",
            contract=contract,
            load=partial(self.run, op, outputs),
            requires=(on_cuda, *requires, self.library_there),
            launch=self.shortcut,
            libraries=self.libraries,
        )


_loaded: dict[tuple[CudaOp, Target, Types], Launch] = {}


def triton(
    module: str,
    op: Op,
    *requires: Requirement,
    contract: Contract = "close",
    outputs: Taken = taken,
) -> Implementation:
    """Return the implementation by the family's module `triton`, which is imported when it is first needed.

    `module` is the name of any module of the family (`__name__`).
    """
    return Implementation(
        backend="triton",
        contract=contract,
        load=triton_function(module, op, outputs),
        requires=(triton_there, *requires),
    )


def triton_function(
    module: str, op: Op, outputs: Taken = taken, kernels: str = "triton", **fixed: Any
) -> Callable[[], Callable[..., Any]]:
    """Return a function that loads the op's function of a module of kernels. `fixed` are further arguments of it."""
    return partial(from_module, f"{module.rpartition('.')[0]}.{kernels}", op, outputs, **fixed)
