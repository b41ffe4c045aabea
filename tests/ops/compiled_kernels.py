"""Triton kernels compiled for an H200 on a machine without one: a launch is recorded, and compiled as recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

POINTERS = {
    torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32", torch.int32: "*i32", torch.int64: "*i64",
    torch.bool: "*i1",
}  # fmt: skip


class Recorded:
    """Replaces a kernel and records its launches."""

    def __init__(self) -> None:
        self.launches: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *arguments, **named: self.launches.append((arguments, named))


class Signature:
    """The properties of a launch's arguments that Triton compiles for: types, constants, and multiples of 16."""

    def __init__(self) -> None:
        self.constants: dict[tuple[int, ...], Any] = {}
        self.attributes: dict[tuple[int, ...], list[list[Any]]] = {}

    def kind(self, value: Any, path: tuple[int, ...]) -> Any:
        if isinstance(value, tuple):
            return tuple(self.kind(own, (*path, number)) for number, own in enumerate(value))
        if value is None or (isinstance(value, int) and value == 1):
            self.constants[path] = value
            return "constexpr"
        if isinstance(value, float):
            return "fp32"
        address = value.data_ptr() if isinstance(value, torch.Tensor) else value
        if address % 16 == 0:
            self.attributes[path] = [["tt.divisibility", 16]]
        if isinstance(value, torch.Tensor):
            return POINTERS[value.dtype]
        return "i32" if -(2**31) <= value < 2**31 else "i64"


def ptx_of(module: Any, kernel: str, call: Callable[[], Any]) -> str:
    """Return the PTX of the only launch of a module's kernel that a call makes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    own, recorded = getattr(module, kernel), Recorded()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, kernel, recorded)
        call()
    ((arguments, named),) = recorded.launches
    found = Signature()
    signature = {
        name: found.kind(value, (number,))
        for number, (name, value) in enumerate(zip(own.arg_names, arguments, strict=False))
    }
    for name in own.arg_names[len(arguments) :]:
        found.constants[(own.arg_names.index(name),)] = named.pop(name)
        signature[name] = "constexpr"
    source = ASTSource(own, signature, found.constants, found.attributes)
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=named).asm["ptx"])


def narrow_accesses(ptx: str, access: str) -> list[str]:
    """Return loads ("ld.global") or stores ("st.global") of less than 16 bytes."""
    lines = [line for line in ptx.splitlines() if access in line]
    assert lines and ".target sm_90" in ptx
    return [line for line in lines if ".v4." not in line]
