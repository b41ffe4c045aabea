"""What a call of an op returns: as a graph is promised it, as a kernel is given it, and as `out=` must be."""

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
# Of an op's tensors, and the device on which to make the outputs; none: the tensors' own.
Promise = Callable[[Sequence[Tensor | None], str | None], tuple[Tensor, ...]]
Taken = Callable[[Op, Promise, Sequence[Tensor | None], Any], tuple[Tensor, ...]]


def rows_like(first: Tensor, dtype: torch.dtype | None = None, device: str | torch.device | None = None) -> Tensor:
    """As the tensor lies, but never with gaps in its last axis, which no kernel writes: what torch makes like windows,
    whose rows lie on top of each other, has them."""
    made = torch.empty_like(first, dtype=dtype, device=device)
    if made.ndim and made.shape[-1] > 1 and made.stride(-1) != 1:
        return torch.empty(first.shape, dtype=made.dtype, device=made.device)
    return made


def like_first(op: Op) -> Promise:
    """Every output as the first tensor is."""

    def promise(tensors: Sequence[Tensor | None], device: str | None = None) -> tuple[Tensor, ...]:
        first = tensors[0]
        assert first is not None
        return tuple(rows_like(first, device=device) for _ in op.outputs)

    return promise


def shaped_like(
    first: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None, device: str | None = None
) -> Tensor:
    """As the first tensor lies, where the shape is its own."""
    if first.shape == shape:
        return rows_like(first, dtype, device)
    return torch.empty(shape, dtype=dtype or first.dtype, device=device or first.device)


def taken(op: Op, promise: Promise, tensors: Sequence[Tensor | None], out: Any) -> tuple[Tensor, ...]:
    """New outputs, or those that were given, which must be as promised and have no gaps in their last axis."""
    if out is None:
        return promise(tensors, None)
    outs = (out,) if isinstance(out, Tensor) else tuple(out)
    for name, own, wanted in zip(op.outputs, outs, promise(tensors, "meta"), strict=True):
        if own.shape != wanted.shape or own.dtype != wanted.dtype:
            found, expected = f"{own.dtype} {list(own.shape)}", f"{wanted.dtype} {list(wanted.shape)}"
            raise BadArgument("out", f"{name} is {found}, not {expected}")
    refuse_gaps(op, outs)
    return outs


def refuse_gaps(op: Op, outs: Sequence[Tensor]) -> None:
    """Which no kernel writes."""
    for name, own in zip(op.outputs, outs, strict=True):
        if own.ndim and own.shape[-1] > 1 and own.stride(-1) != 1:
            raise BadArgument("out", f"{name} has a last axis with gaps")


def refuse_piled(name: str, own: Tensor, called: str = "") -> None:
    """Elements that lie on top of each other cannot each be written. `called`: which it is of those that go by the
    name."""
    is_expanded = 0 in own.stride() and own.numel() != 0 and any(map(_is_expanded, own.shape, own.stride()))
    # A graph is made for any number of rows: to compare strides would tie it to those at hand.
    is_for_any = is_compiling() or not all(type(number) is int for number in (*own.shape, *own.stride()))
    if not is_expanded and (is_for_any or not overlaps_itself(own)):
        return
    how = "is expanded" if is_expanded else "overlaps itself"
    raise BadArgument(name, f"{called}{' ' * bool(called)}{how}, and cannot be written", "pass its clone()")


def _is_expanded(size: int, step: int) -> bool:
    return size > 1 and step == 0


def dispatches_itself(given: Any) -> bool:
    """Whether it is a tensor of a class that sees to every op by itself, and may have no memory of its own."""
    return isinstance(given, Tensor) and type(given).__torch_dispatch__ is not Tensor.__torch_dispatch__


def has_memory(own: Tensor) -> bool:
    """That can be asked where it lies."""
    return not (is_compiling() or transforms() is not None or own.is_meta or dispatches_itself(own))


def share_memory(one: Tensor, other: Tensor) -> bool:
    """Whether what one writes the other has."""
    if not (has_memory(one) and has_memory(other) and one.numel() and other.numel()):
        return False
    return share_bytes(one, other)


def lies_in_place(one: Tensor, other: Tensor) -> bool:
    """Whether each element of one lies where the other has the same one."""
    if (one.data_ptr(), one.shape, one.itemsize) != (other.data_ptr(), other.shape, other.itemsize):
        return False
    steps = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(own == its for size, own, its in steps if size > 1)


def may_overlap(tensors: Sequence[Tensor | None], are_activations: Sequence[bool], out: Any) -> bool:
    """Whether an output could lie where an input or another output does: a look at storages alone, for callers who are
    in a hurry. In an activation's very place it may lie."""
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
    """Whether what is written destroys what an input has. In an activation's very place it may lie: every kernel reads
    an element of one before it writes that element, and never again. Of what modulates that does not hold: a kernel
    with two results reads the second one's rows when the first is written."""
    return share_memory(own, written) and not (name in op.activations and lies_in_place(own, written))


def refuse_overlaps(op: Op, tensors: Mapping[str, Tensor]) -> None:
    """Of an op that works in place."""
    for name in op.inplace:
        for other, own in tensors.items():
            if other != name and overlaps(op, other, own, tensors[name]):
                raise BadArgument(name, f"overlaps {other}, and cannot be written", "pass its clone()")


def written(own: Written) -> Written:
    """What a kernel has written behind torch's back, and torch is told: a gradient may need it as it was.

    For calls that record gradients: to all others it would be a part of their time.
    """
    torch.autograd.graph.increment_version(own)
    return own


def given_back(outputs: Sequence[Tensor]) -> Any:
    """Of an op that works in place there are none."""
    return (outputs[0] if len(outputs) == 1 else tuple(outputs)) if outputs else None


def from_launch(
    op: Op,
    promise: Promise,
    launch: Callable[[Sequence[Tensor], Sequence[Tensor]], Launch],
    outputs: Taken = taken,
) -> Callable[..., Any]:
    """The op's own signature, and `out=`, over a foreign function, which `launch` finds for tensors and outputs."""

    def run(*tensors: Any, out: Any = None, **scalars: Any) -> Any:
        outs = outputs(op, promise, tensors, out)
        if not launch(tensors, outs)(*tensors, *(scalars[name] for name in op.scalar_defaults), *outs):
            raise KernwrightError(
                f"{op.name}: the kernel refused a call that its requirements took", "please report it"
            )
        return given_back(outs)

    return run


def from_module(module: str, op: Op, promise: Promise, outputs: Taken = taken) -> Callable[..., Any]:
    """The function of the op's name in a module of kernels, with its outputs made or checked before it is called."""
    own = getattr(importlib.import_module(module), op.name)

    def run(*tensors: Tensor | None, out: Any = None, **scalars: Any) -> Any:
        outs = outputs(op, promise, tensors, out)
        own(*tensors, **scalars, out=given_back(outs))
        return given_back(outs)

    return run
