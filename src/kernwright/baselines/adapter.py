"""Adapter: calls the kernel of a published package for one op, and knows the rows that the package declines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernwright.tasks.tensor import ConcreteTensor
from kernwright.tasks.workload import Scalar, Workload

Capability = tuple[int, int]
Function = Callable[..., Any]


@dataclass(frozen=True)
class Signature:
    """A row as an adapter sees it. `capability` is None without a GPU."""

    tensors: Mapping[str, ConcreteTensor]
    scalars: Mapping[str, Scalar]
    capability: Capability | None

    @classmethod
    def of(cls, row: Workload, defaults: Mapping[str, Scalar], capability: Capability | None) -> Signature:
        return cls(row.concrete_inputs(), {**defaults, **row.scalars}, capability)

    def __getitem__(self, name: str) -> ConcreteTensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors


Objection = Callable[[Signature], str | None]  # returns the reason why a row is declined, or None


@dataclass(frozen=True)
class Adapter:
    """One op of one package.

    `bind` takes the package's functions, in the order of `functions`, and returns a callable in the op's signature. It
    runs in the baseline's worker; everything else here is known without importing the package.
    """

    op: str
    functions: tuple[str, ...]  # "module:name", as a caller of the package imports them
    file: str  # the file of the package that launches the kernel
    kernels: str  # a pattern that at least one kernel of a call on a GPU must match
    bind: Callable[..., Function]
    objections: tuple[Objection, ...] = ()
    needs: tuple[str, ...] = ()  # further trees that the kernel needs
    interpreted: bool = False  # True if Triton's interpreter can run it on a CPU
    rounding: str = ""  # the known difference of its rounding from the reference

    def declines(self, signature: Signature) -> str | None:
        if signature.capability is None and not self.interpreted:
            return "its kernel runs on a GPU only"
        return next((why for objection in self.objections if (why := objection(signature))), None)

    def ran(self, names: Sequence[str]) -> bool:
        """Return whether a census shows the package's own kernel."""
        return any(re.search(self.kernels, name) for name in names)


@dataclass
class Table:
    """The adapters of one package, by op."""

    adapters: dict[str, Adapter] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)  # by op without a kernel: the code that the package runs

    def add(
        self, op: str, *functions: str, file: str, kernels: str, **more: Any
    ) -> Callable[[Callable[..., Function]], Callable[..., Function]]:
        """Register the decorated function as the `bind` of an adapter."""

        def keep(bind: Callable[..., Function]) -> Callable[..., Function]:
            self.adapters[op] = Adapter(op, functions, file, kernels, bind, **more)
            return bind

        return keep


# Objections that several adapters share.


def dtypes(*allowed: str, of: tuple[str, ...]) -> Objection:
    def objection(signature: Signature) -> str | None:
        for name in of:
            if name in signature and signature[name].dtype not in allowed:
                return f"{name} is {signature[name].dtype}, it takes {', '.join(allowed)}"
        return None

    return objection


def same_dtype(*names: str) -> Objection:
    def objection(signature: Signature) -> str | None:
        found = {signature[name].dtype for name in names if name in signature}
        return f"{', '.join(names)} must share one dtype" if len(found) > 1 else None

    return objection


def contiguous(*names: str) -> Objection:
    def objection(signature: Signature) -> str | None:
        strided = [name for name in names if name in signature and not _is_dense(signature[name])]
        return f"{strided[0]} must be contiguous" if strided else None

    return objection


def dimensions(count: int, *names: str) -> Objection:
    def objection(signature: Signature) -> str | None:
        for name in names:
            if name in signature and len(signature[name].shape) != count:
                return f"{name} has {len(signature[name].shape)} dimensions, it takes {count}"
        return None

    return objection


def least_capability(major: int, minor: int = 0) -> Objection:
    def objection(signature: Signature) -> str | None:
        found = signature.capability
        if found is not None and found < (major, minor):
            return f"its kernel is for sm_{major}{minor} and later, this is sm_{found[0]}{found[1]}"
        return None

    return objection


def _is_dense(tensor: ConcreteTensor) -> bool:
    """Compare strides as torch does: those of dimensions of size 1 do not matter."""
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
