"""Outputs of an op: how they are allocated, how a graph expects them, and checks of memory that is written."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from kernwright.core.errors import KernwrightError
from kernwright.core.op import Op
from kernwright.runtime.call import BadArgument, is_compiling, transforms
from kernwright.runtime.implementation import Launch
from kernwright.runtime.overlaps import overlaps_itself, share_bytes

Written = TypeVar("Written", bound=Tensor | tuple[Tensor, ...])
MOST_REMEMBERED = 4096  # calls of one op whose output shapes are remembered


def rows_like(first: Tensor, dtype: torch.dtype | None = None, device: str | torch.device | None = None) -> Tensor:
    """Return an uninitialized tensor laid out like `first`, but with a dense last axis, which every kernel needs."""
    return _with_dense_rows(torch.empty_like(first, dtype=dtype, device=device))


def _with_dense_rows(made: Tensor) -> Tensor:
    if made.ndim and made.shape[-1] > 1 and made.stride(-1) != 1:
        return torch.empty(made.shape, dtype=made.dtype, device=made.device)
    return made


Allocate = Callable[[tuple[Any, ...]], tuple[Tensor, ...]]  # takes all arguments of a call, returns its outputs
_declared: dict[str, Allocate] = {}


def declare_outputs(op: Op, allocate: Allocate | None) -> None:
    """Declare how the outputs of a shipped op are made; without `allocate` each is like the first tensor.

    An eager call uses this instead of the definition: a LayerNorm without memory makes torch import its compiler, which
    takes seconds.
    """

    def like_first(arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return tuple(rows_like(arguments[0]) for _ in op.outputs)

    _declared[op.name] = allocate or like_first


class Promise:
    """The outputs of a call, as a graph expects them and as a kernel is given them.

    In a graph they are derived from the op's definition: shapes and dtypes are those that it returns for tensors
    without memory. An output with the shape of an activation lies as that one does; any other is dense. An
    eager call of a shipped op makes them as declared.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self._known: dict[Any, list[tuple[Sequence[int], torch.dtype]]] = {}

    def __call__(
        self, tensors: Sequence[Tensor | None], scalars: Mapping[str, Any], device: str | None = None
    ) -> tuple[Tensor, ...]:
        """Return uninitialized outputs, on a device or on that of the tensors."""
        if not self.op.outputs:
            return ()
        is_eager = type(tensors[0]) is Tensor and not tensors[0].is_meta and not is_compiling()
        if is_eager and (declared := _declared.get(self.op.name)) is not None:
            given = tensors if device is None else [_without_memory(own) for own in tensors]
            return tuple(map(_with_dense_rows, declared((*given, *scalars.values()))))
        alike = [
            own
            for parameter, own in zip(self.op.tensor_parameters, tensors, strict=True)
            if own is not None and parameter.name in self.op.activations
        ]
        return tuple(self._made(alike, shape, dtype, device) for shape, dtype in self._results(tensors, scalars))

    @staticmethod
    def _made(activations: Sequence[Tensor], shape: Sequence[int], dtype: torch.dtype, device: str | None) -> Tensor:
        for own in activations:
            if own.shape == shape:
                return rows_like(own, dtype, device)
        return torch.empty(shape, dtype=dtype, device=device or activations[0].device)

    def _results(
        self, tensors: Sequence[Tensor | None], scalars: Mapping[str, Any]
    ) -> list[tuple[Sequence[int], torch.dtype]]:
        try:
            key = (*(None if own is None else (own.shape, own.dtype) for own in tensors), *scalars.values())
            if (known := self._known.get(key)) is not None:
                return known
        except TypeError:  # symbolic sizes cannot be keys
            key = None
        found = self._computed(tensors, scalars)
        if key is not None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return found

    def _computed(
        self, tensors: Sequence[Tensor | None], scalars: Mapping[str, Any]
    ) -> list[tuple[Sequence[int], torch.dtype]]:
        result = self.op.reference(*map(_without_memory, tensors), **scalars)
        return [(own.shape, own.dtype) for own in ((result,) if isinstance(result, Tensor) else result or ())]


def _without_memory(own: Tensor | None) -> Tensor | None:
    return None if own is None else torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device="meta")


Taken = Callable[[Promise, Sequence[Tensor | None], Mapping[str, Any], Any], tuple[Tensor, ...]]


def taken(
    promise: Promise, tensors: Sequence[Tensor | None], scalars: Mapping[str, Any], out: Any
) -> tuple[Tensor, ...]:
    """Return new outputs, or those that were given, which must be as promised and have no gaps in their last axis."""
    if out is None:
        return promise(tensors, scalars)
    outs = (out,) if isinstance(out, Tensor) else tuple(out)
    for name, own, wanted in zip(promise.op.outputs, outs, promise(tensors, scalars, "meta"), strict=True):
        if own.shape != wanted.shape or own.dtype != wanted.dtype:
            found, expected = f"{own.dtype} {list(own.shape)}", f"{wanted.dtype} {list(wanted.shape)}"
            raise BadArgument("out", f"{name} is {found}, not {expected}")
    refuse_gaps(promise.op, outs)
    return outs


def refuse_gaps(op: Op, outs: Sequence[Tensor]) -> None:
    """Raise BadArgument if an output's last axis has gaps; no kernel writes such a tensor."""
    for name, own in zip(op.outputs, outs, strict=True):
        if own.ndim and own.shape[-1] > 1 and own.stride(-1) != 1:
            raise BadArgument("out", f"{name} has a last axis with gaps")


def refuse_piled(name: str, own: Tensor, called: str = "") -> None:
    """Raise BadArgument if elements of a tensor overlap. `called` names the tensor within the argument."""
    is_expanded = 0 in own.stride() and own.numel() != 0 and any(map(_is_expanded, own.shape, own.stride()))
    # A graph is valid for any number of rows. Comparing strides would specialize it for the present ones.
    is_for_any = is_compiling() or not all(type(number) is int for number in (*own.shape, *own.stride()))
    if not is_expanded and (is_for_any or not overlaps_itself(own)):
        return
    how = "is expanded" if is_expanded else "overlaps itself"
    raise BadArgument(name, f"{called}{' ' * bool(called)}{how}, and cannot be written", "pass its clone()")


def _is_expanded(size: int, step: int) -> bool:
    return size > 1 and step == 0


def dispatches_itself(given: Any) -> bool:
    """Return whether this is a tensor subclass that handles every op itself, and so may have no memory."""
    return isinstance(given, Tensor) and type(given).__torch_dispatch__ is not Tensor.__torch_dispatch__


def has_memory(own: Tensor) -> bool:
    """Return whether a tensor has memory whose address can be read: no compiler, transform, meta device or subclass."""
    return not (is_compiling() or transforms() is not None or own.is_meta or dispatches_itself(own))


def share_memory(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors share a byte of memory. False if either has no memory or no elements."""
    if not (has_memory(one) and has_memory(other) and one.numel() and other.numel()):
        return False
    return share_bytes(one, other)


def lies_in_place(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same shape and the same address for each element."""
    if (one.data_ptr(), one.shape, one.itemsize) != (other.data_ptr(), other.shape, other.itemsize):
        return False
    steps = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(own == its for size, own, its in steps if size > 1)


def may_overlap(tensors: Sequence[Tensor | None], are_activations: Sequence[bool], out: Any) -> bool:
    """Return whether an output may overlap an input or another output. This compares storages only, which is fast.

    An output that coincides with an activation, element by element, does not count.
    """
    outs = out if isinstance(out, (tuple, list)) else (out,)
    places = [own.untyped_storage().data_ptr() for own in outs]
    if len(places) > 1 and len(set(places)) < len(places):
        return True
    return any(
        own.untyped_storage().data_ptr() in places
        and not (is_activation and any(lies_in_place(own, other) for other in outs))
        for own, is_activation in zip(tensors, are_activations, strict=True)
        if own is not None
    )


def overlaps(op: Op, name: str, own: Tensor, written: Tensor) -> bool:
    """Return whether writing an output would destroy an input that is still needed.

    An output may coincide with an activation, element by element: every kernel reads an element before it writes that
    element, and never again. A modulation may not: a kernel with two results reads its rows again after the first
    result is written.
    """
    return share_memory(own, written) and not (name in op.activations and lies_in_place(own, written))


def refuse_overlaps(op: Op, tensors: Mapping[str, Tensor]) -> None:
    """Raise BadArgument if a tensor that an op changes in place overlaps another argument."""
    for name in op.inplace:
        for other, own in tensors.items():
            if other != name and overlaps(op, other, own, tensors[name]):
                raise BadArgument(name, f"overlaps {other}, and cannot be written", "pass its clone()")


def written(own: Written) -> Written:
    """Tell autograd that a kernel wrote these tensors, and return them."""
    torch.autograd.graph.increment_version(own)
    return own


def given_back(outputs: Sequence[Tensor]) -> Any:
    """Return outputs as a call returns them: None, one tensor, or a tuple."""
    return (outputs[0] if len(outputs) == 1 else tuple(outputs)) if outputs else None


def from_launch(
    op: Op, launch: Callable[[Sequence[Tensor], Sequence[Tensor]], Launch], outputs: Taken = taken
) -> Callable[..., Any]:
    """Return a function with the op's signature and `out=` that calls the foreign function found by `launch`."""
    promise, names = Promise(op), tuple(op.scalar_defaults)

    def run(*tensors: Any, out: Any = None, **scalars: Any) -> Any:
        outs = outputs(promise, tensors, scalars, out)
        if not launch(tensors, outs)(*tensors, *[scalars[name] for name in names], *outs):
            raise KernwrightError(
                f"{op.name}: the kernel refused a call that its requirements accepted",
                "report this as a bug, with the shapes and dtypes of the call",
            )
        return given_back(outs)

    return run


def from_module(module: str, op: Op, outputs: Taken = taken, **fixed: Any) -> Callable[..., Any]:
    """Return the function of the op's name in a module of kernels, with its outputs made or checked before the call."""
    own, promise = getattr(importlib.import_module(module), op.name), Promise(op)

    def run(*tensors: Tensor | None, out: Any = None, **scalars: Any) -> Any:
        outs = outputs(promise, tensors, scalars, out)
        own(*tensors, **scalars, **fixed, out=given_back(outs))
        return given_back(outs)

    return run
