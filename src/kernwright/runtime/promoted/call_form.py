"""CallForm: calls of one kind that a promoted kernel was judged on.

A promoted kernel is proven only for calls like the judged ones. A form fixes dtypes, number of axes, layouts, which
optional tensors are given, and the scalars. An axis takes the judged sizes only, or any size within the judged range if
it was judged at odd and at even sizes. The address of a tensor is no part of a form: the kernel's launcher copies
tensors that are not aligned as the judged ones were.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from kernwright.runtime.call import Call

DTYPES = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64,
    "i32": torch.int32, "i64": torch.int64, "bool": torch.bool, "u8": torch.uint8,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
DENSE, CHANNELS_LAST = "dense", "channels_last"
Plain = bool | int | float | str
Stage = tuple[int, str]  # how far a call got in the checks, and why it got no further


class Range(BaseModel):
    """The values of an axis or a scalar that were judged: each of `one_of`, or all within `least` and `most`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    one_of: tuple[Plain, ...] = ()
    least: float | None = None
    most: float | None = None

    def refusal(self, name: str, value: Any) -> str | None:
        """Return why a value was not judged; None if it was."""
        if self.least is None or self.most is None:
            known = any(isinstance(value, bool) == isinstance(own, bool) and value == own for own in self.one_of)
            return None if known else f"{name} is {value!r}, judged with {', '.join(map(repr, self.one_of))}"
        if isinstance(value, str) or not self.least <= value <= self.most:
            return f"{name} is {value!r}, judged from {self.least:g} to {self.most:g}"
        return None


class TensorForm(BaseModel):
    """The form of one tensor: its sizes are numbers, axes, or sums of products of both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: str
    shape: tuple[int | str, ...]
    layout: str | tuple[int, ...] = Field(default=DENSE, description="dense, channels_last, or strides in elements")

    def strides(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the judged strides of a tensor with these sizes."""
        if not isinstance(self.layout, str):
            return self.layout
        order = [0, *range(2, len(shape)), 1] if self.layout == CHANNELS_LAST else list(range(len(shape)))
        found, step = [0] * len(shape), 1
        for axis in reversed(order):
            found[axis] = step
            step *= shape[axis]
        return tuple(found)


class CallForm(BaseModel):
    """Calls of one kind. A tensor that is None in `tensors` is not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensors: Mapping[str, TensorForm | None]
    outputs: Mapping[str, TensorForm]
    axes: Mapping[str, Range]
    scalars: Mapping[str, Range]

    def stage(self, call: Call) -> Stage | None:
        """Return None if a call has this form, else how far it got and the first difference."""
        for number, check in enumerate((self._presence, self._tensors, self._scalars, self._sizes, self._layouts)):
            for reason in check(call):
                return number, reason
        return None

    def _presence(self, call: Call) -> Iterator[str]:
        for name, own in self.tensors.items():
            if (call.tensors.get(name) is None) != (own is None):
                yield f"{name} is {'given' if own is None else 'not given'}, which was not judged"

    def _tensors(self, call: Call) -> Iterator[str]:
        for name, own, given in self._given(call):
            if given.dtype != DTYPES[own.dtype]:
                yield f"{name} is {NAMES.get(given.dtype, given.dtype)}, judged in {own.dtype}"
            if given.ndim != len(own.shape):
                yield f"{name} has {given.ndim} dimensions, judged with {len(own.shape)}"

    def _scalars(self, call: Call) -> Iterator[str]:
        for name, judged in self.scalars.items():
            if reason := judged.refusal(name, call.arguments[name]):
                yield reason

    def _sizes(self, call: Call) -> Iterator[str]:
        bound: dict[str, int] = {}
        for _, own, given in self._given(call):
            bound |= {size: given.shape[at] for at, size in enumerate(own.shape) if size in self.axes}  # type: ignore[misc]
        for name, size in bound.items():
            if reason := self.axes[name].refusal(f"axis {name}", size):
                yield reason
        for name, own, given in self._given(call):
            wanted = tuple(size_at(size, bound) for size in own.shape)
            if tuple(given.shape) != wanted:
                yield f"{name} is {list(given.shape)}, judged as {list(own.shape)}, here {list(wanted)}"

    def _layouts(self, call: Call) -> Iterator[str]:
        for name, own, given in self._given(call):
            if not same_strides(given.shape, given.stride(), own.strides(given.shape)):
                kind = own.layout if isinstance(own.layout, str) else f"strides {list(own.layout)}"
                yield f"{name} has strides {list(given.stride())}, judged {kind}"

    def _given(self, call: Call) -> Iterator[tuple[str, TensorForm, Tensor]]:
        for name, own in self.tensors.items():
            if own is not None:
                yield name, own, call.tensors[name]


class CallForms:
    """All forms of one kernel. It is a requirement of the kernel's implementation."""

    def __init__(self, forms: Sequence[CallForm]) -> None:
        self._forms = forms

    def __call__(self, call: Call) -> str | None:
        """Return why no form is that of a call, by the form that comes closest; None if there is one."""
        found = self.find(call)
        return None if isinstance(found, CallForm) else found

    def find(self, call: Call) -> CallForm | str:
        """Return the form of a call, or the reason why there is none."""
        furthest: Stage = (-1, "it was judged on no call")
        for form in self._forms:
            stage = form.stage(call)
            if stage is None:
                return form
            furthest = max(furthest, stage, key=lambda each: each[0])
        return furthest[1]


def size_at(size: int | str, axes: Mapping[str, int]) -> int:
    """Return the size that an expression such as `F*P+1` has; -1 if an axis is unknown."""
    if isinstance(size, int):
        return size
    words = [product.split("*") for product in size.split("+")]
    if any(not word.isdigit() and word not in axes for product in words for word in product):
        return -1
    return sum(math.prod(int(word) if word.isdigit() else axes[word] for word in product) for product in words)


def same_strides(shape: Sequence[int], own: Sequence[int], wanted: Sequence[int]) -> bool:
    """Compare strides, except those of axes of size 1, which address nothing."""
    return all(size == 1 or left == right for size, left, right in zip(shape, own, wanted, strict=True))
