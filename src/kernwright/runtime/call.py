"""Call: an op with the arguments that somebody gave it, before anything is chosen or launched."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.parameter import is_lazy

from kernwright.core.errors import KernwrightError
from kernwright.core.op import Op

is_compiling, is_dynamo_compiling = torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling
transforms = torch._C._functorch.peek_interpreter_stack
is_any_autocast_enabled = torch._C._is_any_autocast_enabled
NUMBERS = (int, float, torch.SymInt, torch.SymFloat, Real)  # numpy's, too
PLAIN = (float, int, bool, str, type(None))


class BadArgument(KernwrightError, ValueError):
    """An argument that no implementation could take. It is found before anything is launched."""

    def __init__(self, name: str, problem: str, remedy: str = "") -> None:
        self.name, self.problem = name, problem
        super().__init__(f"{name}: {problem}", remedy)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.problem, self.remedy)

    def renamed(self, names: Mapping[str, str]) -> BadArgument:
        """For one who passed the op's arguments under names of their own."""
        words = re.compile(rf"\b({'|'.join(names)})\b")
        return BadArgument(
            *(words.sub(lambda found: names[found[0]], text) for text in (self.name, self.problem, self.remedy))
        )


@dataclass(frozen=True)
class Call:
    """Arguments by name, defaults filled in."""

    op: Op
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, op: Op, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Call:
        """Raises TypeError, as the op's own signature would, where they do not fit."""
        bound = _signature(op.reference).bind(*arguments, **named)
        bound.apply_defaults()
        return cls(op, bound.arguments)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Those that were given."""
        given = {parameter.name: self.arguments[parameter.name] for parameter in self.op.tensor_parameters}
        return {name: value for name, value in given.items() if isinstance(value, Tensor)}

    @property
    def first(self) -> Tensor:
        """The tensor that the others are held against."""
        return self.tensors[self.op.activations[0]]

    @property
    def needs_gradient(self) -> bool:
        return any_trains(list(self.tensors.values()))

    def check(self) -> None:
        """What holds for every op: tensors where the signature has tensors, all on one device."""
        for parameter in self.op.tensor_parameters:
            value = self.arguments[parameter.name]
            if not (isinstance(value, Tensor) or (value is None and parameter.optional)):
                raise BadArgument(parameter.name, f"is a {type(value).__name__}, not a tensor")
            if value is not None:
                refuse_strange(parameter.name, value)
        for name, default in self.op.scalar_defaults.items():
            value = self.arguments[name]
            if isinstance(default, float) and not isinstance(value, NUMBERS):
                raise BadArgument(name, f"is a {type(value).__name__}, not a number")
            if isinstance(default, str) and not isinstance(value, str):
                raise BadArgument(name, f"is a {type(value).__name__}, not a text")
        device = self.first.device
        for name, tensor in self.tensors.items():
            if tensor.device != device:
                raise BadArgument(name, f"is on {tensor.device}, {self.op.activations[0]} is on {device}")

    @property
    def parts(self) -> tuple[list[Any], dict[str, Any]]:
        """Every tensor in its place, and every scalar by its name."""
        names = [parameter.name for parameter in self.op.tensor_parameters]
        scalars = {name: value for name, value in self.arguments.items() if name not in names}
        return [self.arguments[name] for name in names], plain(scalars)


def plain(scalars: dict[str, Any]) -> dict[str, Any]:
    """With Python's own numbers in the place of others, numpy's for one: not every compiler takes those."""
    if all(type(value) in PLAIN for value in scalars.values()):
        return scalars
    return {
        name: float(own) if type(own) not in PLAIN and isinstance(own, Real) else own for name, own in scalars.items()
    }


def refuse_strange(name: str, tensor: Tensor, called: str = "") -> None:
    """A tensor that is not rows of numbers in memory, of which nothing else can be asked: often not even its shape.

    `called`: which it is of those that go by the name.
    """
    if is_compiling():
        return  # a compiler lets none of them in, and looks into this
    words = f"{called}{' ' * bool(called)}is"
    if is_lazy(tensor):
        raise BadArgument(name, f"{words} not initialized", "run its lazy module once, or load its weights")
    if tensor.is_nested:
        raise BadArgument(name, f"{words} nested, not one tensor", "pass its parts, or its to_padded_tensor(0.0)")
    if tensor.layout != torch.strided:
        kind = str(tensor.layout).removeprefix("torch.").removeprefix("_")
        raise BadArgument(name, f"{words} {kind}, not a tensor with strides", "pass its to_dense()")


def any_trains(tensors: Sequence[Tensor | None]) -> bool:
    """In a call that records gradients, or that derivatives go through forwards. What is no tensor is found out by the
    check."""
    given = [value for value in tensors if isinstance(value, Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return True
    return not is_compiling() and forward_ad._current_level >= 0 and any(map(_goes_forward, given))


def _goes_forward(tensor: Tensor) -> bool:
    """Whether it has a tangent; inside a transform it may, and under vmap torch cannot say."""
    return transforms() is not None or forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


@cache
def _signature(reference: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(reference)


def run_reference(op: Op, arguments: Sequence[Any], scalars: Mapping[str, Any]) -> Any:
    """The op's definition, read when it is called: one that is being captured is wrapped.

    Kernels know of no autocast, under which torch's own norms give float32: in an op's place the reference gives what
    the kernels give.
    """
    if is_any_autocast_enabled():  # to ask for a device would cost each call its name
        given = (*arguments, *scalars.values())  # tensors by their names, too
        kind = next((own.device.type for own in given if isinstance(own, Tensor)), "cpu")
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return op.reference(*arguments, **scalars)
    return op.reference(*arguments, **scalars)
