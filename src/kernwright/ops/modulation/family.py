"""Implementations of scale_shift, residual_gate and broadcast_add. All are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, empty_like

from kernwright.core.op import Op
from kernwright.ops._shared.checks import check_floating, joint_shape
from kernwright.ops._shared.implementations import SUM_HEADERS, TYPES, WORDS, CudaOp, Types, sources, triton
from kernwright.ops._shared.modulation_layout import check_modulation
from kernwright.ops._shared.sums import WIDEST, folded_sum
from kernwright.ops._shared.token_requirements import DTYPES, axes_fit, rounds_to_nearest
from kernwright.ops.modulation import definition
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.fused_op import FusedOp
from kernwright.runtime.library import Library
from kernwright.runtime.outputs import Promise, taken
from kernwright.runtime.triton.tuning import Work, measured_by

MODULATIONS = ("scale", "shift", "gate")
SOURCES = (*sources(__file__, "host.cc", "kernel.cu", "flat.cuh", "policy.h"), *SUM_HEADERS)


def check(call: Call) -> None:
    check_floating(call)
    if call.op.name == "scale_shift":
        for name in ("scale", "shift"):
            check_modulation(name, call.tensors[name], call.tensors["x"])
    else:
        joint_shape(call, ("a", "b") if call.op.name == "broadcast_add" else ("residual", "update"))
    if call.op.name == "residual_gate":
        check_modulation("gate", call.tensors["gate"], call.tensors["update"], "update")


def tensors_fit(call: Call) -> str | None:
    """Require what every fused kernel asks of the tensors."""
    for name, tensor in call.tensors.items():
        if tensor.dtype not in DTYPES:
            return f"{name} is {tensor.dtype}"
    return _sum_fits(call) if call.op.name == "broadcast_add" else _tokens_fit(call)


def _tokens_fit(call: Call) -> str | None:
    name = "update" if call.op.name == "residual_gate" else "x"
    x = call.tensors[name]
    if (refusal := axes_fit(x, name)) is not None:
        return refusal
    if x.shape[-1] > WIDEST:
        return f"{name} is {x.shape[-1]} wide, over {WIDEST}"
    for own, tensor in call.tensors.items():
        last = tensor.stride(-1) if tensor.ndim and tensor.shape[-1] > 1 else 1
        # A modulation whose one number was expanded to a row has step 0, and is read as one number.
        if last != 1 and not (last == 0 and own in MODULATIONS):
            return f"{own} has a last axis with gaps"
    residual = call.tensors.get("residual")
    if residual is not None and residual.shape != x.shape:
        return f"residual is {list(residual.shape)}, update is {list(x.shape)}"
    return None


def _sum_fits(call: Call) -> str | None:
    a, b = call.tensors["a"], call.tensors["b"]
    if folded_sum(a, b) is not None:
        return None
    summands = f"a, {a.dtype} {list(a.shape)}, and b, {b.dtype} {list(b.shape)}"
    return f"{summands}, are no rows of channels in the result's dtype"


def taken_in_order(
    promise: Promise, tensors: Sequence[Tensor | None], scalars: Mapping[str, Any], out: Any
) -> tuple[Tensor, ...]:
    """Take outputs as every op does.

    An output that is given for a sum must also have its axes in the order of the summands.
    """
    outs = taken(promise, tensors, scalars, out)
    if out is not None and promise.op.name == "broadcast_add" and outs[0].numel():
        a, b = tensors
        assert a is not None and b is not None
        if folded_sum(a, b, outs[0].stride()) is None:
            raise BadArgument("out", "has axes that lie in another order than the summands'")
    return outs


def is_compiled(x: torch.dtype, result: torch.dtype) -> bool:
    return x in TYPES and result in (x, torch.float32)


@dataclass(frozen=True, eq=False)
class ModulationOp(CudaOp):
    """A library for each dtype of x and of the result. It holds all ops of the family, and ernie_residual_gate."""

    def kinds(self) -> list[Types]:
        return [(x, result) for x in TYPES for result in TYPES if is_compiled(x, result)]

    def types(self, tensors: Sequence[Any]) -> Types:
        first, second = tensors[0].dtype, tensors[1].dtype
        if self.function == "scale_shift":
            return first, first
        if self.function == "broadcast_add":  # the kernel chooses which summand is x; it has the result's dtype
            return (torch.result_type(tensors[0], tensors[1]),) * 2
        # A half-width residual of an update in another dtype is taken by the library of the residual's dtype.
        return (second, first) if is_compiled(second, first) else (first, first)

    def library(self, dtype: torch.dtype, *others: torch.dtype) -> Library:
        (result,) = others
        name = f"modulation_{WORDS[dtype]}" if dtype == result else f"modulation_{WORDS[dtype]}_{WORDS[result]}"
        return Library(name, SOURCES, (("KERNWRIGHT_TYPE", TYPES[dtype]), ("KERNWRIGHT_RESULT", TYPES[result])))


def like_larger(arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
    """Allocate a sum. The foreign function refuses it where neither summand has its shape."""
    a, b = arguments
    return (empty_like(a if a.numel() >= b.numel() else b),)


def work_of_sum(call: Call) -> Work | None:
    own = folded_sum(call.tensors["a"], call.tensors["b"])
    return None if own is None else (own.last.size, own.elements, own.x.element_size())


measured_by("broadcast_add", work_of_sum)
CUDA = {
    op: ModulationOp(op, SOURCES) for op in ("scale_shift", "residual_gate", "broadcast_add", "ernie_residual_gate")
}


def _fused(op: Op) -> FusedOp:
    own = CUDA[op.name].implementation(op, tensors_fit, contract="exact", outputs=taken_in_order)
    other = triton(__name__, op, tensors_fit, rounds_to_nearest, contract="exact", outputs=taken_in_order)
    is_sum = op.name == "broadcast_add"
    allocate = like_larger if is_sum else None
    return FusedOp(op=op, implementations=(own, other), check=check, allocate=allocate, derives_outputs=is_sum)


OPS = {op.name: _fused(op) for op in (definition.scale_shift, definition.residual_gate, definition.broadcast_add)}
