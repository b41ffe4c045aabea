"""Calls of a module, observed from outside: neither hooks nor compilers see the observer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def observed_calls(module: nn.Module, around: Around) -> Iterator[None]:
    """Let a function make the calls of a module, while the block runs.

    Args:
        around: gets the module's own call, and the positional and named arguments of the call. It returns the result.
    """
    own = type(module)

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(lambda *a, **n: own.__call__(self, *a, **n), arguments, named)

    module.__class__ = type(own.__name__, (own,), {"__call__": call, "__module__": own.__module__})
    try:
        yield
    finally:
        module.__class__ = own


def tensor_shapes(named: dict[str, Any]) -> dict[str, Any]:
    """Return the shapes of the tensors among the arguments of a call."""
    return {name: shape for name, value in named.items() if (shape := _shape(value)) is not None}


def _shape(value: Any) -> Any:
    if hasattr(value, "shape"):
        return list(value.shape)
    if isinstance(value, (list, tuple)) and value and all(hasattr(each, "shape") for each in value):
        return [list(each.shape) for each in value]
    return None
