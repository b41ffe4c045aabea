"""Call: an op with the arguments of one call, before an implementation is chosen."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from numbers import Integral, Real
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
NUMBERS = (int, float, torch.SymInt, torch.SymFloat, Real)  # numpy registers its scalars as Real and Integral
INTEGERS = (int, torch.SymInt, Integral)
PLAIN = (float, int, bool, str, type(None))


class BadArgument(KernwrightError, ValueError):
    """An argument that no implementation could take. It is raised before anything is launched."""

    def __init__(self, name: str, problem: str, remedy: str = "") -> None:
        self.name, self.problem = name, problem
        super().__init__(f"{name}: {problem}", remedy)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.problem, self.remedy)

    def renamed(self, names: Mapping[str, str]) -> BadArgument:
        """Return this error with other names of arguments, for a caller that passed them under its own names."""
        words = re.compile(rf"\b({'|'.join(names)})\b")
        return BadArgument(
            *(words.sub(lambda found: names[found[0]], text) for text in (self.name, self.problem, self.remedy))
        )


@dataclass(frozen=True)
class Call:
    """An op and the arguments of a call by name, with defaults filled in."""

    op: Op
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, op: Op, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Call:
        """Bind the arguments of a call. Raise TypeError if they do not match the signature of the definition."""
        bound = _signature(op.reference).bind(*arguments, **named)
        bound.apply_defaults()
        return cls(op, bound.arguments)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that were given, by name."""
        given = {parameter.name: self.arguments[parameter.name] for parameter in self.op.tensor_parameters}
        return {name: value for name, value in given.items() if isinstance(value, Tensor)}

    @property
    def first(self) -> Tensor:
        """Return the first activation. Others are compared with its device, dtype and shape."""
        return self.tensors[self.op.activations[0]]

    @property
    def needs_gradient(self) -> bool:
        """Return whether the call must record a gradient, which only the reference can."""
        return any_trains(list(self.tensors.values()))

    def check(self) -> None:
        """Raise BadArgument for a value of the wrong type, or for tensors on several devices."""
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
            if isinstance(default, bool) and not _is_boolean(value):
                raise BadArgument(name, f"is a {type(value).__name__}, not a boolean")
            if type(default) is int and not isinstance(value, INTEGERS):
                raise BadArgument(name, f"is a {type(value).__name__}, not an integer")
            if isinstance(default, str) and not isinstance(value, str):
                raise BadArgument(name, f"is a {type(value).__name__}, not a string")
        device = self.first.device
        for name, tensor in self.tensors.items():
            if tensor.device != device:
                raise BadArgument(name, f"is on {tensor.device}, {self.op.activations[0]} is on {device}")

    @property
    def parts(self) -> tuple[list[Any], dict[str, Any]]:
        """Return all tensors by position and all scalars by name."""
        names = [parameter.name for parameter in self.op.tensor_parameters]
        scalars = {name: value for name, value in self.arguments.items() if name not in names}
        return [self.arguments[name] for name in names], plain(scalars)


def plain(scalars: dict[str, Any]) -> dict[str, Any]:
    """Return scalars with Python's numbers in place of others, such as numpy's, which not every compiler takes."""
    if all(type(value) in PLAIN for value in scalars.values()):
        return scalars
    return {name: _plain_number(own) for name, own in scalars.items()}


def _plain_number(own: Any) -> Any:
    if type(own) in PLAIN or not isinstance(own, Real):
        return own
    return int(own) if isinstance(own, Integral) else float(own)


def _is_boolean(value: Any) -> bool:
    """Return whether a value is a boolean of Python, torch or numpy. numpy is not imported: it may be absent."""
    kind = type(value)
    return isinstance(value, bool | torch.SymBool) or (
        kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")
    )


def refuse_strange(name: str, tensor: Tensor, called: str = "") -> None:
    """Raise BadArgument for a tensor without strided memory: lazy, nested or sparse.

    Such a tensor often cannot even tell its shape. `called` names the tensor within the argument.
    """
    if is_compiling():
        return  # a compiler refuses such tensors itself, and would trace this function
    words = f"{called}{' ' * bool(called)}is"
    if is_lazy(tensor):
        raise BadArgument(name, f"{words} not initialized", "run its lazy module once, or load its weights")
    if tensor.is_nested:
        raise BadArgument(name, f"{words} nested, not one tensor", "pass its parts, or its to_padded_tensor(0.0)")
    if tensor.layout != torch.strided:
        kind = str(tensor.layout).removeprefix("torch.").removeprefix("_")
        raise BadArgument(name, f"{words} {kind}, not a tensor with strides", "pass its to_dense()")


def any_trains(tensors: Sequence[Tensor | None]) -> bool:
    """Return whether a call with these tensors records gradients or computes forward derivatives.

    Values that are not tensors are ignored; the check of the call names them.
    """
    given = [value for value in tensors if isinstance(value, Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return True
    return not is_compiling() and forward_ad._current_level >= 0 and any(map(_goes_forward, given))


def _goes_forward(tensor: Tensor) -> bool:
    """Return whether a tensor may have a tangent. Inside a transform the answer is True: vmap hides tangents."""
    return transforms() is not None or forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


@cache
def _signature(reference: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(reference)


def run_reference(op: Op, arguments: Sequence[Any], scalars: Mapping[str, Any]) -> Any:
    """Run the op's definition outside of autocast, so that its results have the dtypes that kernels give.

    `op.reference` is looked up in each call, since a capture wraps it.
    """
    if is_any_autocast_enabled():  # this check is faster than one for a single device, which needs the device's name
        given = (*arguments, *scalars.values())  # tensors may be given by name
        kind = next((own.device.type for own in given if isinstance(own, Tensor)), "cpu")
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return op.reference(*arguments, **scalars)
    return op.reference(*arguments, **scalars)
