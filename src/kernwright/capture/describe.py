"""Describing a call's values: shapes, dtypes, strides and plain scalars, never what a tensor holds.

A value becomes a small hashable tuple, which serves as its part of the call's signature; `as_json` spells it out.
Nothing here waits for a device: all that is read is the tensor's metadata.
"""

from __future__ import annotations

import sys
from typing import Any

Described = tuple[Any, ...]

LONGEST_TEXT = 100  # a longer string is content (a prompt, a document), not a setting
LONGEST_LIST = 64
DEEPEST_LIST = 3
CONSTANTS = ("dtype", "layout", "memory_format")  # torch's own: settings, as a number is


class Traced(Exception):
    """The call runs on stand-ins of a compiler: their sizes may be symbols, and asking for one would fix it."""


def describe(value: Any, depth: int = 0) -> Described:
    kind = type(value)
    if value is None:
        return ("scalar", "none", None)
    if kind is bool or kind is int:
        return ("scalar", kind.__name__, value)
    if kind is float:
        return ("scalar", "float", value.hex())  # unlike the float itself, equal for two NaNs, unequal for -0.0 and 0.0
    if isinstance(value, str):
        text = str.__str__(value)
        return ("scalar", "str", text) if len(text) <= LONGEST_TEXT else ("other", "long str")
    if _is_tensor(value):
        return _describe_tensor(value)
    if isinstance(value, int):
        return ("scalar", "int", int(value))
    if isinstance(value, float):
        return ("scalar", "float", float(value).hex())
    if isinstance(value, (list, tuple)):
        if len(value) > LONGEST_LIST or depth >= DEEPEST_LIST:
            return ("other", f"long {kind.__name__}")
        return ("list", tuple(describe(item, depth + 1) for item in value))
    if kind.__module__ == "torch" and kind.__name__ in CONSTANTS:
        return ("scalar", kind.__name__, str(value).replace("torch.", "", 1))
    if kind.__module__ == "torch" and kind.__name__ in ("SymInt", "SymFloat", "SymBool"):
        raise Traced
    return ("other", f"{kind.__module__}.{kind.__qualname__}")


def result_of(described: Described) -> Described:
    """What came back, without scalars: those were computed, perhaps from what tensors hold."""
    kind = described[0]
    if kind == "scalar":
        return described if described[1] == "none" else ("other", described[1])
    return ("list", tuple(result_of(item) for item in described[1])) if kind == "list" else described


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # None while torch is being imported
    return tensor is not None and isinstance(value, tensor)


def _describe_tensor(tensor: Any) -> Described:
    if type(tensor).__module__.startswith("torch._subclasses"):
        raise Traced
    shape = tuple(tensor.shape)
    if any(type(size) is not int for size in shape):
        raise Traced
    strides = tuple(tensor.stride()) if str(tensor.layout) == "torch.strided" else None
    return ("tensor", shape, str(tensor.dtype), strides, tensor.device.type, bool(tensor.requires_grad))


def as_json(described: Described) -> dict[str, Any]:
    kind = described[0]
    if kind == "tensor":
        _, shape, dtype, strides, device, requires_grad = described
        return {
            "kind": "tensor",
            "shape": list(shape),
            "dtype": dtype.replace("torch.", "", 1),
            "strides": None if strides is None else list(strides),
            "device": device,
            "requires_grad": requires_grad,
        }
    if kind == "scalar":
        _, name, value = described
        if name == "float":
            number = float.fromhex(value)
            value = number if number - number == 0 else str(number)  # JSON has no NaN and no Inf
        return {"kind": "scalar", "type": name, "value": value}
    if kind == "list":
        return {"kind": "list", "items": [as_json(item) for item in described[1]]}
    return {"kind": "other", "type": described[1]}
