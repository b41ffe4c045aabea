"""Copies of a call's arguments, so that the candidate can run without any effect on the program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

MOST_MODULE_BYTES = 4 << 30  # largest float64 copy of a module


def copied(value: Any) -> Any:
    """Return a copy in which every tensor has its own memory, with the same strides. Modules stay the same."""
    return _mapped(value, _own_memory)


def widened(value: Any) -> Any:
    """Return a copy in float64: floating point tensors, and modules with their parameters."""
    return _mapped(value, _in_float64)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of a value in lists, tuples and dicts, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, (Tensor, torch.nn.Module)):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_mapped(each, change) for each in value)
    if type(value) is dict:
        return {key: _mapped(each, change) for key, each in value.items()}
    return value


def _own_memory(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    with torch.no_grad():
        if value.layout != torch.strided or value.numel() == 0:
            return value.clone()
        span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
        memory = torch.as_strided(value.detach(), (span,), (1,), value.storage_offset()).clone()
        return torch.as_strided(memory, value.shape, value.stride(), 0).requires_grad_(value.requires_grad)


def _in_float64(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(torch.float64) if value.is_floating_point() else value.detach().clone()
    size = sum(8 * tensor.numel() for tensor in (*value.parameters(), *value.buffers()))
    if size > MOST_MODULE_BYTES:
        raise MemoryError(f"the module has {size} bytes in float64")
    return copy.deepcopy(value).double()
