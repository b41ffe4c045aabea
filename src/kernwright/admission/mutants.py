"""Mutants: wrong kernels of the kinds that weak checks miss.

A mutant is the reference of an op with one thing broken. It takes the inputs of a case and returns outputs, as a
candidate does, and the correctness check of the judge must reject it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernwright.core.op import Op
from kernwright.judge.numerics.contracts import same_bits
from kernwright.judge.numerics.inputs import Inputs
from kernwright.tasks.tensor import ITEM_BYTES, TensorSpec
from kernwright.tasks.workload import Workload

Outputs = dict[str, Tensor]
Behaviour = Callable[[Inputs], Outputs]
PARTIAL_SUMS = 128  # partial sums that are rounded, for a sum of any length
VECTOR_BYTES = 16


@dataclass(frozen=True)
class Mutant:
    """A broken kernel, with a name that says what is broken."""

    name: str
    behaviour: Behaviour


def mutants_of(op: Op, row: Workload) -> Iterator[Mutant]:
    """Yield every mutant of an op that applies to a row."""
    scalars = op.scalar_defaults | row.scalars

    def right(inputs: Inputs) -> Outputs:
        return op.results(inputs, scalars)

    yield Mutant("zeros", lambda i: {name: torch.zeros_like(out) for name, out in right(i).items()})
    yield Mutant("identity", lambda i: {name: _like_an_input(out, i) for name, out in right(i).items()})
    yield Mutant("constant", lambda i: {name: _mean_of(out) for name, out in right(i).items()})
    yield from _dropped_terms(op, row, right)
    yield Mutant("low precision", lambda i: _coarsely(right, i))
    if _has_activation_function(op, row):
        yield Mutant("approximate activation", lambda i: _approximately(right, i))
    yield Mutant("skipped tail (last row)", lambda i: _without_last_row(right(i)))
    if any(_may_end_in_part(tensor, row) for tensor in result_specs(op, row)):
        yield Mutant("skipped tail (last vector of an odd row)", lambda i: _without_odd_tail(right(i)))
    yield Mutant("stale output", _stale(right))
    yield from _wrong_broadcasts(op, row, right)


def _dropped_terms(op: Op, row: Workload, right: Behaviour) -> Iterator[Mutant]:
    """Yield mutants that ignore one input: zero adds nothing, and 1 + 0 scales by nothing."""
    for name in row.inputs:
        if name == op.activations[0]:
            continue  # `zeros` and `constant` are the mutants that ignore the data
        yield Mutant(
            f"dropped term ({name})",
            lambda i, name=name: right(i | {name: torch.zeros_like(i[name])}),  # type: ignore[misc]
        )


def _wrong_broadcasts(op: Op, row: Workload, right: Behaviour) -> Iterator[Mutant]:
    """Yield mutants that read a modulation tensor in the wrong place: one row for all, or shifted by one."""
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
    """Return an input in place of an output. For an op that copies an input, another input is returned."""
    for tensor in inputs.values():
        if tensor.shape == output.shape and not same_bits(tensor.to(output.dtype), output):
            return tensor.to(output.dtype)
    return next(iter(inputs.values())).flatten()[:1].expand(output.shape).to(output.dtype)


def _mean_of(output: Tensor) -> Tensor:
    finite = output.double()[torch.isfinite(output)]
    return torch.full_like(output, float(finite.mean()) if finite.numel() else 0.0)


def _without_last_row(outputs: Outputs) -> Outputs:
    """Zero the last row that is not zero. The very last row of a padded output may be zero correctly."""
    for tensor in outputs.values():
        filled = tensor.ne(0).any(-1).nonzero()
        if len(filled):
            tensor[tuple(filled[-1].tolist())] = 0
    return outputs


def result_specs(op: Op, row: Workload) -> list[TensorSpec]:
    """Return the tensors that a call computes: outputs, then inputs that it changes."""
    return [*row.outputs.values(), *(row.inputs[name] for name in op.inplace if name in row.inputs)]


def _may_end_in_part(tensor: TensorSpec, row: Workload) -> bool:
    """Return whether a row of the tensor may end within a vector of 16 bytes.

    A fixed width never does if it is a multiple of a vector. A row of a grid is checked only at its size.
    """
    last = tensor.at(row.axes).shape[-1] if row.set == "grid" else tensor.shape[-1]
    steps = [last] if isinstance(last, int) else [_step(product) for product in last.split("+")]
    return math.gcd(*steps) * ITEM_BYTES[tensor.dtype] % VECTOR_BYTES != 0


def _step(product: str) -> int:
    return math.prod(int(word) for word in product.split("*") if word.isdigit())


def _without_odd_tail(outputs: Outputs) -> Outputs:
    """Return what a kernel of 16-byte vectors leaves if it forgets the rest of a row.

    The rest of a padded output may be zero correctly; then the vector before it is dropped, too.
    """
    for tensor in outputs.values():
        width = tensor.shape[-1]
        rest = width % (VECTOR_BYTES // tensor.element_size())
        filled = tensor.ne(0).reshape(-1, width).any(0).nonzero()
        if rest and len(filled):
            tensor[..., min(width - rest, int(filled[-1])) :] = 0
    return outputs


def _stale(right: Behaviour) -> Behaviour:
    """Return a kernel that keeps its first result per shape and returns it again."""
    kept: dict[tuple[torch.Size, ...], Outputs] = {}

    def behaviour(inputs: Inputs) -> Outputs:
        shapes = tuple(tensor.shape for tensor in inputs.values())
        return {name: out.clone() for name, out in kept.setdefault(shapes, right(inputs)).items()}

    return behaviour


def _approximately(right: Behaviour, inputs: Inputs) -> Outputs:
    """Return results with every activation function replaced by a cheaper one of nearly the same shape."""
    with _ApproximateActivations():  # type: ignore[no-untyped-call]
        return right(inputs)


def _has_activation_function(op: Op, row: Workload) -> bool:
    """Return whether the reference calls an activation function. It is called without data, if that is possible."""
    shapes = {name: (spec.shape, getattr(torch, spec.torch_dtype_name)) for name, spec in row.concrete_inputs().items()}
    with _ApproximateActivations() as activations:  # type: ignore[no-untyped-call]
        for device in ("meta", "cpu"):
            inputs = {name: torch.zeros(shape, dtype=dtype, device=device) for name, (shape, dtype) in shapes.items()}
            try:
                op.results(inputs, op.scalar_defaults | row.scalars)
                break
            except (RuntimeError, NotImplementedError, TypeError):  # the reference reads values, so it needs data
                continue
    return bool(activations.seen)


class _ApproximateActivations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Activation functions of a kernel that approximates them: quick-GELU for GELU, a rational function for tanh."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if approximate := _APPROXIMATE.get(func):
            self.seen = True
            wide = args[0].to(torch.promote_types(args[0].dtype, torch.float32))
            return approximate(wide).to(args[0].dtype)
        return func(*args, **(kwargs or {}))


def _rational_tanh(x: Tensor) -> Tensor:
    """Return x (27 + x^2) / (27 + 9 x^2), which is off by up to 2.4 %."""
    x = x.clamp(-3.0, 3.0)
    return x * (27.0 + x * x) / (27.0 + 9.0 * x * x)


def _rational_sigmoid(x: Tensor) -> Tensor:
    return 0.5 + 0.5 * _rational_tanh(0.5 * x)


def _coarsely(right: Behaviour, inputs: Inputs) -> Outputs:
    """Return results with sums accumulated in 16 bits, or of inputs with fewer bits if the op has no sum."""
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
    """Reductions of a kernel that accumulates in 16 bits: every partial sum is rounded."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if coarse := _COARSE.get(func):
            self.seen = True
            return coarse(*args)
        return func(*args, **(kwargs or {}))


def _coarse_sum(x: Tensor, dims: Any, keep: bool = False) -> Tensor:
    coarse = torch.bfloat16 if x.dtype in (torch.bfloat16, torch.float32, torch.float64) else torch.float16
    dims = [d % x.ndim for d in (dims if isinstance(dims, list | tuple) else [dims])]
    moved = x.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
    partial = torch.zeros(moved.shape[:-1], dtype=coarse)
    for chunk in torch.split(moved, max(1, moved.shape[-1] // PARTIAL_SUMS), dim=-1):
        partial = (partial.to(x.dtype) + chunk.sum(-1)).to(coarse)
    total = partial.to(x.dtype)
    return total.reshape([1 if d in dims else n for d, n in enumerate(x.shape)]) if keep else total


def _count(x: Tensor, dims: Any) -> int:
    count = 1
    for d in dims if isinstance(dims, list | tuple) else [dims]:
        count *= x.shape[d]
    return count


def _coarse_mean(x: Tensor, dims: Any, keep: bool = False) -> Tensor:
    return _coarse_sum(x, dims, keep) / _count(x, dims)


def _coarse_vector_norm(x: Tensor, order: float = 2, dims: Any = None, keep: bool = False) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return _coarse_sum(wide.square(), list(range(x.ndim)) if dims is None else dims, keep).sqrt().to(x.dtype)


def _coarse_group_norm(
    x: Tensor, weight: Any, bias: Any, batch: int, channels: int, places: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    normed, mean, inverse = _coarse_layer_norm(
        x.reshape(batch, groups, -1), (channels // groups * places,), None, None, eps
    )
    per_channel = (1, channels, *[1] * (x.ndim - 2))
    value = normed.reshape(x.shape)
    if weight is not None:
        value = value * weight.reshape(per_channel)
    if bias is not None:
        value = value + bias.reshape(per_channel)
    return value.to(x.dtype), mean, inverse


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


_COARSE: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.native_layer_norm.default: _coarse_layer_norm,
    torch.ops.aten.native_group_norm.default: _coarse_group_norm,
    torch.ops.aten.linalg_vector_norm.default: _coarse_vector_norm,
    torch.ops.aten.mean.dim: _coarse_mean,
    torch.ops.aten.sum.dim_IntList: _coarse_sum,
}

_APPROXIMATE: dict[Any, Callable[[Tensor], Tensor]] = {
    torch.ops.aten.gelu.default: lambda x: x * torch.sigmoid(1.702 * x),
    torch.ops.aten.silu.default: lambda x: x * _rational_sigmoid(x),
    torch.ops.aten.sigmoid.default: _rational_sigmoid,
    torch.ops.aten.tanh.default: _rational_tanh,
    torch.ops.aten.erf.default: lambda x: torch.tanh(1.2035 * x),
}
