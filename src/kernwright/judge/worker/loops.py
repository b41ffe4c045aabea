"""Loops over the slots of a row without Python between the calls, for the `device` metric on a CPU.

A GPU replays a graph. A CPU has no graphs, so `device` runs native code from a compiled loop, and the eager chain in
TorchScript's interpreter, operator by operator and unfused. Otherwise the metric is unavailable, with the reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.worker.entry import RowCall

Loop = Callable[[Sequence[int]], list[Any]]


class NoLoop(Exception):
    """This side cannot be called without Python."""


def loop_without_python(side: SideOrders, call: RowCall, slots: list[list[Any]]) -> Loop:
    if call.native and side.loop:
        return _native_loop(side.loop, call, slots)
    if side.kind == "eager":
        return _scripted_loop(call, slots)
    raise NoLoop("it is Python code; on a CPU, only native code and the eager chain have a device time")


def _native_loop(library: str, call: RowCall, slots: list[list[Any]]) -> Loop:
    import tvm_ffi

    run = tvm_ffi.load_module(library).run
    outputs = [
        [torch.empty_strided(t.shape, t.strides, dtype=getattr(torch, t.torch_dtype_name)) for t in call.outputs]
        for _ in slots
    ]
    packed = tvm_ffi.convert(
        [
            [_exported(a) for a in (*slot, *call.scalars.values(), *out)]
            for slot, out in zip(slots, outputs, strict=True)
        ]
    )

    def loop(order: Sequence[int]) -> list[Any]:
        run(call.function, packed, torch.tensor(order, dtype=torch.int64))
        return [outputs[index] for index in order]

    return loop


def _exported(argument: Any) -> Any:
    import tvm_ffi

    return tvm_ffi.from_dlpack(argument) if isinstance(argument, Tensor) else argument


class _Scripted(torch.nn.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def forward(self, slots: list[list[Tensor]], order: list[int]) -> list[list[Tensor]]:
        kept: list[list[Tensor]] = []
        for index in order:
            kept.append(self.body(slots[index]))
        return kept


def _scripted_loop(call: RowCall, slots: list[list[Any]]) -> Loop:
    given = [number for number, argument in enumerate(slots[0]) if argument is not None]
    tensors = [[slot[number] for number in given] for slot in slots]
    arity = len(slots[0])

    def body(present: list[Tensor]) -> list[Tensor]:
        arguments: list[Tensor | None] = [None] * arity
        for number, tensor in zip(given, present, strict=True):
            arguments[number] = tensor
        result = call.function(*arguments, **call.scalars)
        if result is None:
            return present[:1]  # an in-place op; a scripted body must return something
        return [result] if isinstance(result, Tensor) else list(result)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(body, (tensors[0],), check_trace=False)  # type: ignore[no-untyped-call]
        scripted = torch.jit.script(_Scripted(traced))

    def loop(order: Sequence[int]) -> list[Any]:
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return scripted(tensors, list(order))  # type: ignore[no-any-return]

    return loop
