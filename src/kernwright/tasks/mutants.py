"""Mutants: wrong kernels of the kinds that slip through weak checks. A task that lets one pass is no task.

Each mutant is the op's own reference with one thing broken. It takes a case's inputs and gives outputs, as a candidate
does, and it is the judge's own correctness check that must reject it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernwright.judge.inputs import Inputs
from kernwright.ops.definition import Op
from kernwright.tasks.workload import Workload

Outputs = dict[str, Tensor]
Behaviour = Callable[[Inputs], Outputs]


@dataclass(frozen=True)
class Mutant:
    """A name that says what is broken, and the broken kernel."""

    name: str
    behaviour: Behaviour


def mutants_of(op: Op, row: Workload) -> Iterator[Mutant]:
    """Every way this op can be broken on this row."""
    scalars = op.scalar_defaults | row.scalars

    def right(inputs: Inputs) -> Outputs:
        return op.results(inputs, scalars)

    yield Mutant("zeros", lambda i: {name: torch.zeros_like(out) for name, out in right(i).items()})
    yield Mutant("identity", lambda i: {name: _like_an_input(out, i) for name, out in right(i).items()})
    yield Mutant("constant", lambda i: {name: _mean_of(out) for name, out in right(i).items()})
    yield from _dropped_terms(op, row, right)
    yield Mutant("low precision", lambda i: _coarsely(right, i))
    yield Mutant("skipped tail (last row)", lambda i: _without_last_row(right(i)))
    yield Mutant("skipped tail (last vector of an odd row)", lambda i: _without_odd_tail(right(i)))
    yield Mutant("stale output", _stale(right))
    yield from _wrong_broadcasts(op, row, right)


def _dropped_terms(op: Op, row: Workload, right: Behaviour) -> Iterator[Mutant]:
    """Each input in turn as if its term were not there: zero adds nothing, and 1 + 0 multiplies by nothing."""
    for name in row.inputs:
        if name == op.activations[0]:
            continue  # without the data there is no kernel left; `zeros` and `constant` stand for it
        yield Mutant(
            f"dropped term ({name})",
            lambda i, name=name: right(i | {name: torch.zeros_like(i[name])}),  # type: ignore[misc]
        )


def _wrong_broadcasts(op: Op, row: Workload, right: Behaviour) -> Iterator[Mutant]:
    """A modulation tensor read from the wrong place: its first row for every row, or shifted along its last axis."""
    for name, tensor in row.concrete_inputs().items():
        if name in op.activations or tensor.elements == 1:
            continue
        broken = _first_row_only if any(size > 1 for size in tensor.shape[:-1]) else _shifted
        yield Mutant(
            f"wrong broadcast ({name})",
            lambda i, name=name, broken=broken: right(i | {name: broken(i[name])}),  # type: ignore[misc]
        )


def _first_row_only(tensor: Tensor) -> Tensor:
    first = tensor.reshape(-1, tensor.shape[-1])[:1]
    return first.expand(tensor.numel() // tensor.shape[-1], -1).reshape(tensor.shape).clone()


def _shifted(tensor: Tensor) -> Tensor:
    return tensor.roll(1, -1)


def _like_an_input(output: Tensor, inputs: Inputs) -> Tensor:
    for tensor in inputs.values():
        if tensor.shape == output.shape:
            return tensor.to(output.dtype)
    return next(iter(inputs.values())).flatten()[:1].expand(output.shape).to(output.dtype)


def _mean_of(output: Tensor) -> Tensor:
    finite = output.double()[torch.isfinite(output)]
    return torch.full_like(output, float(finite.mean()) if finite.numel() else 0.0)


def _without_last_row(outputs: Outputs) -> Outputs:
    for tensor in outputs.values():
        tensor.reshape(-1, tensor.shape[-1])[-1].zero_()
    return outputs


def _without_odd_tail(outputs: Outputs) -> Outputs:
    """What a kernel of 16-byte vectors leaves when it forgets that a row may not be a whole number of them."""
    for tensor in outputs.values():
        vector = max(1, 16 // tensor.element_size())
        if rest := tensor.shape[-1] % vector:
            tensor[..., -rest:] = 0
    return outputs


def _stale(right: Behaviour) -> Behaviour:
    """Keeps what it computed first for every shape, and hands it out again."""
    kept: dict[tuple[torch.Size, ...], Outputs] = {}

    def behaviour(inputs: Inputs) -> Outputs:
        shapes = tuple(tensor.shape for tensor in inputs.values())
        return {name: out.clone() for name, out in kept.setdefault(shapes, right(inputs)).items()}

    return behaviour


def _coarsely(right: Behaviour, inputs: Inputs) -> Outputs:
    """Sums accumulated in 16 bits; an op that sums nothing computes on inputs with too few bits instead."""
    with _CoarseSums() as sums:  # type: ignore[no-untyped-call]
        outputs = right(inputs)
    if sums.seen:
        return outputs
    return right({name: _fewer_bits(tensor) for name, tensor in inputs.items()})


def _fewer_bits(tensor: Tensor) -> Tensor:
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor.to(torch.bfloat16).to(tensor.dtype)
    if tensor.dtype in (torch.bfloat16, torch.float16):
        return (tensor.contiguous().view(torch.int16) & ~0x7).view(tensor.dtype)
    return tensor


class _CoarseSums(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Reductions as a kernel does them that accumulates in 16 bits: every partial sum is rounded."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        aten = torch.ops.aten
        self.seen = self.seen or func in (aten.native_layer_norm.default, aten.mean.dim, aten.sum.dim_IntList)
        if func is aten.native_layer_norm.default:
            return _coarse_layer_norm(*args)
        if func is aten.mean.dim:
            x, dims, keep = args[0], args[1], args[2] if len(args) > 2 else False
            return _coarse_sum(x, dims, keep) / _count(x, dims)
        if func is aten.sum.dim_IntList:
            return _coarse_sum(args[0], args[1], args[2] if len(args) > 2 else False)
        return func(*args, **kwargs)


def _coarse_sum(x: Tensor, dims: Any, keep: bool) -> Tensor:
    coarse = torch.bfloat16 if x.dtype in (torch.bfloat16, torch.float32, torch.float64) else torch.float16
    dims = [d % x.ndim for d in (dims if isinstance(dims, list | tuple) else [dims])]
    moved = x.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
    partial = torch.zeros(moved.shape[:-1], dtype=coarse)
    for chunk in torch.split(moved, 64, dim=-1):
        partial = (partial.to(x.dtype) + chunk.sum(-1)).to(coarse)
    total = partial.to(x.dtype)
    return total.reshape([1 if d in dims else n for d, n in enumerate(x.shape)]) if keep else total


def _count(x: Tensor, dims: Any) -> int:
    count = 1
    for d in dims if isinstance(dims, list | tuple) else [dims]:
        count *= x.shape[d]
    return count


def _coarse_layer_norm(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(-len(shape), 0))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = _coarse_sum(wide, dims, True) / _count(wide, dims)
    variance = _coarse_sum((wide - mean).square(), dims, True) / _count(wide, dims)
    inverse = torch.rsqrt(variance + eps)
    normed = (wide - mean) * inverse
    if weight is not None:
        normed = normed * weight
    if bias is not None:
        normed = normed + bias
    return normed.to(x.dtype), mean, inverse
